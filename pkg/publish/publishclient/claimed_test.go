package publishclient_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// A registry gets the claimed source of a module, and that of a copy.
func TestClaimed(t *testing.T) {
	t.Parallel()
	claimed := &registry.ClaimedSource{Remote: "https://github.com/acme/vpc.git", Commit: strings.Repeat("a", 40)}
	copied := &registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws", Claimed: claimed}
	for name, test := range map[string]struct {
		claimed *registry.ClaimedSource
		from    *registry.CopiedFrom
	}{
		"no claim": {}, "a claim": {claimed, nil}, "a copy": {nil, copied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, m := newFake(t), module(t)
			m.Record.Claimed, m.Record.CopiedFrom = test.claimed, test.from
			f.record = protocol.Published{Module: &m.Record}
			var got protocol.Announcement
			f.fault = func(kind string, _ int, _ http.ResponseWriter, r *http.Request) bool {
				if kind != "begin" {
					return false
				}
				data, err := io.ReadAll(r.Body)
				if err := errors.Join(err, json.Unmarshal(data, &got)); err != nil {
					t.Error(err)
				}
				r.Body = io.NopCloser(bytes.NewReader(data))
				return false
			}
			if _, err := f.publisher(t, nil, token).Module(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.claimed, got.Claimed); diff != "" {
				t.Errorf("the claim (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.from, got.CopiedFrom); diff != "" {
				t.Errorf("the copy (-want +got):\n%s", diff)
			}
		})
	}
}
