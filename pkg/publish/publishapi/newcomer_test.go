package publishapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// The first answer names a new namespace, and what looks like it as far as the
// caller may know that. A handler that may not list namespaces reports only
// addresses.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	names := func(near string) *protocol.Newcomer {
		return &protocol.Newcomer{NewNamespace: "acmee", Near: near}
	}
	capitals := &protocol.Newcomer{NewAddress: "acme/VPC/aws", Near: "acme/vpc/aws"}
	const acmee, acme, one = "publish:modules/acmee/**", "publish:modules/acme/**", "publish:modules/acme/VPC/aws"
	for name, test := range map[string]struct {
		empty  bool // without acme/vpc/aws
		own    bool // a handler for OwnObjects
		public string
		scopes string
		module string
		copied bool
		want   *protocol.Newcomer
	}{
		"first of the registry":  {empty: true, scopes: acmee, module: "acmee/vpc/aws"},
		"existing address":       {scopes: acme, module: "acme/vpc/aws"},
		"new in a namespace":     {scopes: acme, module: "acme/iam/aws"},
		"one namespace":          {scopes: acmee, module: "acmee/vpc/aws", want: names("")},
		"both namespaces":        {scopes: acmee + " " + acme, module: "acmee/vpc/aws", want: names("acme")},
		"may publish everything": {scopes: acmee + " publish:**", module: "acmee/vpc/aws", want: names("acme")},
		"may read the other":     {scopes: acmee + " read:*/acme", module: "acmee/vpc/aws", want: names("acme")},
		"may read its providers": {scopes: acmee + " read:providers/acme", module: "acmee/vpc/aws", want: names("acme")},
		"may read some of all":   {scopes: acmee + " read:modules/*/vpc/aws", module: "acmee/vpc/aws", want: names("")},
		"the other is public":    {public: "modules/acme", scopes: acmee, module: "acmee/vpc/aws", want: names("acme")},
		"copied":                 {scopes: acmee + " " + acme, module: "acmee/vpc/aws", copied: true},
		"own objects":            {own: true, scopes: acmee + " " + acme, module: "acmee/vpc/aws"},
		"capitals":               {scopes: acme, module: "acme/VPC/aws", want: capitals},
		"capitals, own objects":  {own: true, scopes: acme, module: "acme/VPC/aws", want: capitals},
		"capitals, one module":   {scopes: one, module: "acme/VPC/aws"},
		"capitals, may read":     {scopes: one + " read:modules/acme/vpc", module: "acme/VPC/aws", want: capitals},
		"capitals, copied":       {scopes: acme, module: "acme/VPC/aws", copied: true},
		"capitals, other system": {scopes: acme, module: "acme/VPC/google"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			if !test.empty {
				makeRecord := func(context.Context, protocol.Document) (registry.ModuleVersion, error) {
					return registry.ModuleVersion{Version: v1, Object: vpcAddress.ArchiveKey(v1, "5"), SHA256: "5"}, nil
				}
				if _, _, err := d.catalog.Modules.Publish(t.Context(), vpcAddress, v1, "ada", makeRecord); err != nil {
					t.Fatal(err)
				}
			}
			var settings access.Settings
			if test.public != "" {
				pattern, err := access.ParsePattern(test.public)
				if err != nil {
					t.Fatal(err)
				}
				settings.Public = []access.Pattern{pattern}
			}
			readable := publishapi.AllObjects
			if test.own {
				readable = publishapi.OwnObjects
			}
			api := access.New(settings, d.catalog).RequirePublish(
				publishapi.New(d.catalog, d.store, readable, inspection.InThisProcess{}, limits),
			)
			a := announce(vpc(t, 1))
			a.Files[0].Name = strings.Split(test.module, "/")[1] + ".tar.gz"
			if test.copied {
				a.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/" + test.module}
			}
			token := d.token(t, test.scopes)
			// An upload that continues gets the same answer.
			for range 2 {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
					protocol.PublishPath+"modules/"+test.module+"/2.0.0/uploads", bytes.NewReader(requestJSON(t, a)))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				w := httptest.NewRecorder()
				api.ServeHTTP(w, r)
				var begun protocol.Begun
				if err := json.Unmarshal(w.Body.Bytes(), &begun); err != nil || w.Code != http.StatusCreated {
					t.Fatalf("%d %s: %v", w.Code, w.Body, err)
				}
				if diff := cmp.Diff(test.want, begun.Newcomer); diff != "" {
					t.Errorf("newcomer (-want +got):\n%s", diff)
				}
				if has := strings.Contains(w.Body.String(), "newcomer"); has != (test.want != nil) {
					t.Errorf("the response has the field: %t", has)
				}
			}
		})
	}
}
