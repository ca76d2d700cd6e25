package registry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// The files of a module version are its archive and, if there is one, its
// documentation. Both must belong to the version.
func TestModuleFiles(t *testing.T) {
	t.Parallel()
	vpc := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	one, two := registry.Version{Major: 1}, registry.Version{Major: 2}
	archive := registry.StoredFile{Object: vpc.ArchiveKey(one, "a5"), SHA256: "a5", Size: 5}
	docs := func(key string) *registry.StoredFile {
		return &registry.StoredFile{Object: key, SHA256: "d0c", Size: 3}
	}
	other := registry.Module{Namespace: "acme", Name: "dns", System: "aws"}
	own := vpc.DocumentKey(one, "d0c", registry.DocsName)
	if want := "modules/acme/vpc/aws/1.0.0/d0c/docs.json.gz"; own != want {
		t.Errorf("the documentation's key is %s, want %s", own, want)
	}
	for name, test := range map[string]struct {
		docs  *registry.StoredFile
		valid bool
	}{
		"no documentation":          {nil, true},
		"its documentation":         {docs(own), true},
		"of the publish API":        {docs(registry.UploadKey(vpc.Path(), one, "d0c", registry.DocsName)), true},
		"of another version":        {docs(vpc.DocumentKey(two, "d0c", registry.DocsName)), false},
		"of another module":         {docs(other.DocumentKey(one, "d0c", registry.DocsName)), false},
		"of another digest":         {docs(vpc.DocumentKey(one, "e5", registry.DocsName)), false},
		"without a key":             {docs(""), false},
		"outside of the repository": {docs(vpc.Path() + "/1.0.0/../../d0c"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.ModuleVersion{Version: one, Object: archive.Object, SHA256: archive.SHA256, Size: archive.Size}
			r.Docs = test.docs
			want := []registry.StoredFile{archive}
			if test.docs != nil {
				want = append(want, *test.docs)
			}
			if diff := cmp.Diff(want, r.Files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(archive, r.Archive()); diff != "" {
				t.Errorf("archive (-want +got):\n%s", diff)
			}
			if err := r.Validate(vpc.Path()); (err == nil) != test.valid {
				t.Errorf("valid is %t, want %t: %v", err == nil, test.valid, err)
			}
		})
	}
}
