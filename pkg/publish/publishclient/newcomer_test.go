package publishclient_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
)

// reports makes a registry report what is new in its first answer. The next fault
// handles all other requests.
func (f *fake) reports(
	n protocol.Newcomer, next func(kind string, n int, w http.ResponseWriter, r *http.Request) bool,
) {
	f.fault = func(kind string, count int, w http.ResponseWriter, r *http.Request) bool {
		if kind != "begin" {
			return next != nil && next(kind, count, w, r)
		}
		recorder := httptest.NewRecorder()
		f.begin(recorder, r)
		var b protocol.Begun
		_ = json.Unmarshal(recorder.Body.Bytes(), &b)
		b.Newcomer = &n
		answer(w, recorder.Code, b)
		return true
	}
}

var errDeclined = errors.New("declined")

// The client calls Confirm with what a registry reports as new, unless it is about
// something else, and returns it. Texts that are not names are dropped.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reported, want protocol.Newcomer
	}{
		"namespace": {
			reported: protocol.Newcomer{NewNamespace: "acme"}, want: protocol.Newcomer{NewNamespace: "acme"},
		},
		"similar namespace": {
			reported: protocol.Newcomer{NewNamespace: "acme", Near: "acmee"},
			want:     protocol.Newcomer{NewNamespace: "acme", Near: "acmee"},
		},
		"odd namespace": {
			reported: protocol.Newcomer{NewNamespace: "acme", Near: "acm\x1b[31m"},
			want:     protocol.Newcomer{NewNamespace: "acme"},
		},
		"address": {
			reported: protocol.Newcomer{NewAddress: "acme/vpc/aws", Near: "acme/VPC/aws"},
			want:     protocol.Newcomer{NewAddress: "acme/vpc/aws", Near: "acme/VPC/aws"},
		},
		"odd address":       {reported: protocol.Newcomer{NewAddress: "acme/vpc/aws", Near: "acme/vpc/aws\x1b[31m"}},
		"another namespace": {reported: protocol.Newcomer{NewNamespace: "other", Near: "acme"}},
		"another address":   {reported: protocol.Newcomer{NewAddress: "acme/iam/aws", Near: "acme/VPC/aws"}},
		"nothing":           {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, m := newFake(t), module(t)
			record := m.Record
			f.record = protocol.Published{Module: &record}
			f.reports(test.reported, nil)
			p := f.publisher(t, &progresstest.Recorder{}, token)
			var asked []protocol.Newcomer
			p.Confirm = func(n protocol.Newcomer) error {
				asked = append(asked, n)
				if puts := f.count("put"); puts > 0 {
					t.Errorf("%d files were sent before", puts)
				}
				return nil
			}
			var want []protocol.Newcomer
			if test.want != (protocol.Newcomer{}) {
				want = append(want, test.want)
			}
			result, err := p.Module(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, asked); diff != "" {
				t.Errorf("calls of Confirm (-want +got):\n%s", diff)
			}
			var got []protocol.Newcomer
			if result.Newcomer != nil {
				got = append(got, *result.Newcomer)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// A publish that is declined sends no file and aborts the upload. It calls Confirm
// once, even if it starts over.
func TestNewcomerAnswers(t *testing.T) {
	t.Parallel()
	newcomer := protocol.Newcomer{NewNamespace: "acme", Near: "acmee"}
	expired := func(kind string, n int, w http.ResponseWriter, r *http.Request) bool {
		return kind == "put vpc.tar.gz" && n == 1 && xml(403, "AccessDenied")(w, r)
	}
	for name, test := range map[string]struct {
		change func(*publishclient.Publisher)
		fault  func(kind string, n int, w http.ResponseWriter, r *http.Request) bool
		copied bool
		// unchanged means that the commit finds the same content.
		unchanged bool

		asked int
		err   error
		order []string
	}{
		"declined": {
			change: func(p *publishclient.Publisher) {
				confirm := p.Confirm
				p.Confirm = func(n protocol.Newcomer) error { return errors.Join(confirm(n), errDeclined) }
			},
			asked: 1, err: errDeclined, order: []string{"begin", "abort"},
		},
		"confirmed": {asked: 1, order: []string{"begin", "put vpc.tar.gz", "inspect", "commit"}},
		"starts over": {
			fault: expired, asked: 1,
			order: []string{"begin", "put vpc.tar.gz", "begin", "put vpc.tar.gz", "inspect", "commit"},
		},
		"another was faster": {
			unchanged: true, asked: 1, order: []string{"begin", "put vpc.tar.gz", "inspect", "commit"},
		},
		"nobody to ask": {
			change: func(p *publishclient.Publisher) { p.Confirm = nil },
			order:  []string{"begin", "put vpc.tar.gz", "inspect", "commit"},
		},
		"copied": {copied: true, order: []string{"begin", "put vpc.tar.gz", "inspect", "commit"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, m := newFake(t), module(t)
			if test.copied {
				m.Record.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws"}
			}
			record := m.Record
			f.record = protocol.Published{Module: &record, Unchanged: test.unchanged}
			f.reports(newcomer, test.fault)
			p := f.publisher(t, &progresstest.Recorder{}, token)
			asked := 0
			p.Confirm = func(protocol.Newcomer) error { asked++; return nil }
			if test.change != nil {
				test.change(p)
			}
			result, err := p.Module(t.Context(), m)
			if !errors.Is(err, test.err) || err != nil && test.err == nil {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			if named := result.Newcomer != nil; named != (err == nil && !test.copied && !test.unchanged) {
				t.Errorf("the result has a newcomer: %t", named)
			}
			if asked != test.asked {
				t.Errorf("Confirm was called %d times, want %d", asked, test.asked)
			}
			if !slices.Equal(f.order, test.order) {
				t.Errorf("requests: %q, want %q", f.order, test.order)
			}
		})
	}
}

// A provider has the same results. Content that is published already creates nothing.
func TestNewcomerProvider(t *testing.T) {
	t.Parallel()
	f, m := newFake(t), release(t)
	f.record = recorded(m)
	f.reports(protocol.Newcomer{NewNamespace: "acme", Near: "acmee"}, nil)
	p := f.publisher(t, &progresstest.Recorder{}, token)
	answer := errDeclined
	p.Confirm = func(protocol.Newcomer) error { return answer }
	if _, err := p.Provider(t.Context(), m); !errors.Is(err, errDeclined) || f.count("put") > 0 {
		t.Errorf("declined: %v, and %d files were sent", err, f.count("put"))
	}
	answer = nil
	want := &protocol.Newcomer{NewNamespace: "acme", Near: "acmee"}
	for range 2 {
		result, err := p.Provider(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, result.Newcomer); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		want = nil
	}
}
