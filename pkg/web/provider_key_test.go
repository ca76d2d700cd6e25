package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
)

// The key is not read if the entry does not name it. The page must not report
// that the namespace lacks it.
func TestProviderKeyUnread(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.provider("acme/dns", "1.0.0")
	const path, gone = "/providers/acme/dns", "does not have this key any more"
	if text := s.serve().text(t, http.StatusOK, path); !strings.Contains(text, "acme@example.com") {
		t.Errorf("the page lacks the owner of the key:\n%s", text)
	}
	s.edit(catalog.Key{Partition: "catalog/acme", Sort: "providers/acme/dns"}, `,"signing_key":"51852D87348FFC4C"`, "")
	if text := s.serve().text(t, http.StatusOK, path); strings.Contains(text, gone) {
		t.Errorf("the page says that the namespace lacks the key:\n%s", text)
	}
	if err := s.catalog.RemoveSigningKey(t.Context(), "acme", "51852D87348FFC4C", "tests"); err != nil {
		t.Fatal(err)
	}
	if text := s.serve().text(t, http.StatusOK, path+"/1.0.0"); !strings.Contains(text, gone) {
		t.Errorf("the page does not say that the namespace lacks the key:\n%s", text)
	}
}

// edit replaces a text in an item.
func (s *store) edit(k catalog.Key, before, after string) {
	s.t.Helper()
	item, err := s.table.Get(s.t.Context(), k)
	if err != nil {
		s.t.Fatal(err)
	}
	edited := strings.Replace(string(item.Data), before, after, 1)
	if edited == string(item.Data) {
		s.t.Fatalf("item %s has no %s: %s", k.Shown(), before, item.Data)
	}
	err = s.table.Write(s.t.Context(), catalog.Change{Key: k, Revision: item.Revision, Data: []byte(edited)})
	if err != nil {
		s.t.Fatal(err)
	}
}
