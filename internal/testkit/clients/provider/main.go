// The provider note is a real provider for tests to publish and install. Its
// resource note_file is a file on disk.
package main

import (
	"context"
	"errors"
	"io/fs"
	"log"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
)

// version is set by the linker.
var version = "dev"

func main() {
	// It serves protocol 6 by default.
	opts := providerserver.ServeOpts{Address: "registry.example.com/acme/note"}
	if err := providerserver.Serve(context.Background(), func() provider.Provider { return note{} },
		opts); err != nil {
		log.Fatal(err)
	}
}

// note is the provider. It has no configuration.
type note struct{}

func (note) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "note", version
}

func (note) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {}

func (note) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}

func (note) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (note) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return file{} }}
}

// file is the resource.
type file struct{}

// fileModel has the attributes of a file.
type fileModel struct {
	Path    string `tfsdk:"path"`
	Content string `tfsdk:"content"`
}

func (file) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_file"
}

func (file) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	replaced := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"path":    schema.StringAttribute{Required: true, PlanModifiers: replaced},
		"content": schema.StringAttribute{Required: true, PlanModifiers: replaced},
	}}
}

func (file) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var f fileModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &f)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if err := os.WriteFile(f.Path, []byte(f.Content), 0o600); err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("path"), "The file cannot be written", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, f)...)
}

func (file) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var f fileModel
	resp.Diagnostics.Append(req.State.Get(ctx, &f)...)
	if resp.Diagnostics.HasError() {
		return
	}
	content, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("path"), "The file cannot be read", err.Error())
		return
	}
	f.Content = string(content)
	resp.Diagnostics.Append(resp.State.Set(ctx, f)...)
}

// Update is never called, since any change replaces the file.
func (file) Update(_ context.Context, _ resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.Diagnostics.AddError("A file is replaced, not changed", "This is a mistake in the provider.")
}

func (file) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var f fileModel
	resp.Diagnostics.Append(req.State.Get(ctx, &f)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if err := os.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		resp.Diagnostics.AddAttributeError(path.Root("path"), "The file cannot be deleted", err.Error())
	}
}
