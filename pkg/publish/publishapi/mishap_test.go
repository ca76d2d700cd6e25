package publishapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
)

var errDied = fmt.Errorf("%w: the process died", registry.ErrUnavailable)

// A commit that fails between any two of its steps can be completed with
// another request.
func TestCommitCrashes(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		fail func(*faults)
		// failures is how many commits fail.
		failures int
		kept     int
		visible  bool
	}{
		"before any object is permanent":     {func(f *faults) { f.keep = func(string) error { return errDied } }, 2, 0, false},
		"between the objects and the record": {func(f *faults) { f.publish = func() error { return errDied } }, 2, 4, false},
		"between the record and the response": {func(f *faults) {
			f.published = func() error { return errDied }
		}, 1, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{module1, provider1} {
				d := open(t)
				d.failing = true
				d.addKey(t, "acme", signer)
				files, kept := newRelease(t), test.kept
				if path == module1 {
					files, kept = vpc(t, 1), min(3, test.kept) // the archive, the documentation and the files
				}
				u := d.begin(t, d.token(t, both), path, files).putAll(t).inspectAll(t)
				test.fail(d.faults)
				for range test.failures {
					u.commit(t).refused(t, texts, http.StatusServiceUnavailable)
				}
				there := 0
				for _, state := range d.objects(t) {
					if state == "kept" {
						there++
					}
				}
				visible := strings.Contains(d.visible(t), " version/1.0.0 ")
				if there != kept {
					t.Errorf("%d permanent objects, want %d", there, kept)
				}
				if visible != test.visible {
					t.Errorf("visible: %t, want %t", visible, test.visible)
				}
				if visible {
					u.abort(t).refused(t, texts, http.StatusConflict)
				}
				if test.failures > 1 {
					d.faults.keep, d.faults.publish = nil, nil
				}
				var p protocol.Published
				u.commit(t).into(t, http.StatusOK, &p)
				after := d.visible(t)
				var again protocol.Published
				u.commit(t).into(t, http.StatusOK, &again)
				if p.Unchanged || again.Unchanged {
					t.Error("the upload's own publish counts as one before")
				}
				if after != d.visible(t) || !strings.Contains(after, " version/1.0.0 1 ") {
					t.Errorf("it was published more than once:\n%s", d.visible(t))
				}
			}
		})
	}
}

// If another publisher was faster, the version is published and the upload
// ends, at the latest with a repeated commit.
func TestCommitAfterAnother(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.failing = true
	d.addKey(t, "acme", signer)
	for path, files := range map[string]map[string][]byte{module1: vpc(t, 1), provider1: newRelease(t)} {
		one := d.begin(t, d.token(t, both), path, files).putAll(t).inspectAll(t)
		other := d.begin(t, d.token(t, both), path, files).inspectAll(t)
		one.commit(t).into(t, http.StatusOK, nil)
		before := d.visible(t)
		d.faults.end = func() error { return errDied }
		for range 2 {
			other.commit(t).refused(t, texts, http.StatusServiceUnavailable)
		}
		d.faults.end = nil
		var p protocol.Published
		other.commit(t).into(t, http.StatusOK, &p)
		if !p.Unchanged {
			t.Error("the other's publish counts as the upload's own")
		}
		other.abort(t).refused(t, texts, http.StatusConflict)
		if after := d.visible(t); after != before {
			t.Errorf("something has changed:\n%s", after)
		}
	}
}

// If an upload is aborted during its commit, exactly one of the two succeeds.
func TestAbortInBetween(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t).inspectAll(t)
	d.faults.keep = func(string) error {
		u.abort(t).into(t, http.StatusNoContent, nil)
		return nil
	}
	u.commit(t).refused(t, texts, http.StatusNotFound)
	if visible := d.visible(t); strings.Contains(visible, " version/1.0.0 ") {
		t.Errorf("an aborted upload is published:\n%s", visible)
	}
}

// One of several concurrent commits publishes. The others with the same content
// get that version, and those with other content get an error.
func TestCommitsAtOnce(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token, other := d.token(t, both), d.token(t, both)
	commits := func(uploads ...*upload) []string {
		t.Helper()
		answers := make([]string, len(uploads))
		var group sync.WaitGroup
		for i, u := range uploads {
			group.Go(func() {
				a, err := d.try(t.Context(), u.token, http.MethodPost, u.at("/commit"), nil)
				switch {
				case err != nil:
					answers[i] = err.Error()
				case a.status == http.StatusOK:
					answers[i] = fmt.Sprint("200 unchanged ", strings.Contains(string(a.body), `"unchanged":true`))
				default:
					answers[i] = fmt.Sprint(a.status, " ", a.code(t), " ", a.text())
				}
			})
		}
		group.Wait()
		slices.Sort(answers)
		return answers
	}
	ready := func(path string, value int) *upload {
		return d.begin(t, token, path, vpc(t, value)).putAll(t).inspectAll(t)
	}
	for n := range 3 {
		path := func(minor int) string { return fmt.Sprintf("modules/acme/vpc/aws/%d.%d.0", n, minor) }
		one := ready(path(0), 1)
		for _, got := range commits(one, one) {
			if !strings.HasPrefix(got, "200 ") {
				t.Errorf("one upload: got %q, want status 200", got)
			}
		}
		same := d.begin(t, other, path(1), vpc(t, 1)).putAll(t).inspectAll(t)
		want := []string{"200 unchanged false", "200 unchanged true"}
		if diff := cmp.Diff(want, commits(ready(path(1), 1), same)); diff != "" {
			t.Errorf("the same content (-want +got):\n%s", diff)
		}
		a, b := ready(path(2), 1), ready(path(2), 2)
		check := func(what string, got []string) {
			t.Helper()
			if want := "200 unchanged false"; got[0] != want {
				t.Errorf("%s: got %q, want %q", what, got[0], want)
			}
			if want := "409 exists "; !strings.HasPrefix(got[1], want) {
				t.Errorf("%s: got %q, want %q", what, got[1], want)
			}
			texts.Text(t, what+": "+got[1]+"\n")
		}
		check("other content", commits(a, b))
		before := d.visible(t)
		check("again", commits(a, b))
		if diff := cmp.Diff(before, d.visible(t)); diff != "" {
			t.Errorf("the second commits changed something (-before +after):\n%s", diff)
		}
		b.abort(t)
		a.abort(t)
	}
}

// broken is a stream that ends in an error after some bytes.
type broken struct {
	io.ReadCloser
	left int
	err  error
}

func (b *broken) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// An error of the store is not a fault of the file: the next request reads it
// again.
func TestFailingReads(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	breaking := func(left int, err error) func(*faults) {
		return func(f *faults) {
			f.opened = func(_ string, stored io.ReadCloser) (io.ReadCloser, error) { return &broken{stored, left, err}, nil }
		}
	}
	reset := errors.New("connection reset")
	for name, fail := range map[string]func(*faults){
		"no answer, and none about the object": func(f *faults) {
			f.opened = func(string, io.ReadCloser) (io.ReadCloser, error) { return nil, errDied }
			f.stat = func(string) error { return errDied }
		},
		"no answer to reading": func(f *faults) {
			f.opened = func(string, io.ReadCloser) (io.ReadCloser, error) { return nil, errDied }
		},
		"a break at the beginning": breaking(0, reset),
		"a break in the middle":    breaking(20, reset),
		"an unexpected end":        breaking(20, io.ErrUnexpectedEOF),
		"an early end": func(f *faults) {
			f.opened = func(_ string, stored io.ReadCloser) (io.ReadCloser, error) { return &broken{stored, 20, io.EOF}, nil }
		},
		"no time": breaking(20, context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{module1, provider1} {
				d := open(t)
				d.failing = true
				d.addKey(t, "acme", signer)
				files := newRelease(t)
				if path == module1 {
					files = vpc(t, 1)
				}
				u := d.begin(t, d.token(t, both), path, files).putAll(t)
				fail(d.faults)
				for range 4 { // more often than an inspection may fail
					a := u.inspect(t)
					a.refused(t, texts, http.StatusServiceUnavailable)
					if a.header.Get("Retry-After") == "" {
						t.Error("the response has no Retry-After header")
					}
				}
				u.commit(t).refused(t, texts, http.StatusConflict)
				d.faults.stat, d.faults.opened = nil, nil
				u.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
			}
		})
	}
}

// An upload that continues needs the list of stored files.
func TestListFails(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.failing = true
	token, files := d.token(t, both), vpc(t, 1)
	u := d.begin(t, token, module1, files).putAll(t)
	d.faults.listed = func() error { return errDied }
	again := d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", announce(files))
	again.refused(t, golden.New(t), http.StatusServiceUnavailable)
	d.faults.listed = nil
	if same := d.begin(t, token, module1, files); same.Upload != u.Upload {
		t.Errorf("%s is another upload than %s", same.Upload, u.Upload)
	}
	u.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}

// An object that is deleted while it is read counts as missing.
func TestObjectDeletedDuringRead(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.addKey(t, "acme", signer)
	for _, test := range []struct {
		path  string
		files map[string][]byte
	}{{module1, vpc(t, 1)}, {provider1, newRelease(t)}} {
		u := d.begin(t, d.token(t, both), test.path, test.files).putAll(t)
		d.faults.opened = func(key string, _ io.ReadCloser) (io.ReadCloser, error) {
			return nil, fmt.Errorf("object %s: %w", key, registry.ErrNotFound)
		}
		u.inspect(t).refused(t, texts, http.StatusConflict)
		d.faults.opened = nil
		u.inspectAll(t)
	}
}

// slow blocks reading until it is released.
type slow struct {
	reading chan struct{} // one item for each reader
	release chan struct{}
}

func (d *testAPI) slow() slow {
	s := slow{make(chan struct{}, 9), make(chan struct{})}
	d.faults.opened = func(_ string, stored io.ReadCloser) (io.ReadCloser, error) {
		s.reading <- struct{}{}
		<-s.release
		return stored, nil
	}
	return s
}

// later inspects the upload in the background, until the context ends.
func (u *upload) later(ctx context.Context) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		a, err := u.try(ctx, u.token, http.MethodPost, u.at("/inspect"), nil)
		if err != nil {
			a.body = []byte(err.Error())
		}
		done <- a
	}()
	return done
}

// Clients wait for a long inspection by repeating the request, and it continues
// after the first client disconnects.
func TestLongInspection(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t)
	d.at(0)
	s := d.slow()
	hasty, leave := context.WithCancel(t.Context())
	gone := u.later(hasty)
	<-s.reading
	for range 2 {
		a := u.inspect(t)
		a.into(t, http.StatusAccepted, nil)
		compare(t, "inspecting", a.body)
		if a.header.Get("Retry-After") != "1" {
			t.Error(a.header)
		}
	}
	u.commit(t).refused(t, texts, http.StatusConflict)
	leave()
	if a := <-gone; a.status != 0 {
		t.Errorf("who has left is answered: %d %s", a.status, a.body)
	}
	u.inspect(t).into(t, http.StatusAccepted, nil)
	close(s.release)
	u.passes(t)
	u.commit(t).into(t, http.StatusOK, nil)
	if n := d.faults.claims.count(); n != 1 {
		t.Errorf("it was inspected %d times", n)
	}
}

// passes waits until all files have passed.
func (u *upload) passes(t testing.TB) {
	t.Helper()
	poll.Until(t, "the inspection ends", func() bool {
		a := u.inspect(t)
		if a.status != http.StatusOK {
			a.into(t, http.StatusAccepted, nil)
		}
		return a.status == http.StatusOK
	})
}

// An inspection that does not renew its lease is taken over. If it still runs,
// it changes nothing, and its caller sends the request again.
func TestInspectionThatIsGivenUp(t *testing.T) {
	t.Parallel()
	d := open(t)
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t)
	d.at(0)
	s := d.slow()
	first := u.later(t.Context())
	<-s.reading
	d.at(publishapi.Lease - time.Second)
	u.inspect(t).into(t, http.StatusAccepted, nil)
	d.at(publishapi.Lease + time.Second)
	second := u.later(t.Context())
	<-s.reading
	u.inspect(t).into(t, http.StatusAccepted, nil)
	close(s.release)
	if a := <-first; a.status != http.StatusOK && a.status != http.StatusAccepted {
		t.Errorf("the first request: %d %s", a.status, a.body)
	}
	a := <-second
	a.into(t, http.StatusOK, nil)
	u.commit(t).into(t, http.StatusOK, nil)
	if n := d.faults.claims.count(); n != 2 {
		t.Errorf("it was inspected %d times", n)
	}
}

// An inspection that takes longer than a lease renews it.
func TestSlowInspection(t *testing.T) {
	t.Parallel()
	d := openWith(t, time.Millisecond)
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t)
	d.at(0)
	s := d.slow()
	first := u.later(t.Context())
	<-s.reading
	for n := range 3 {
		d.at(time.Duration(n) * (publishapi.Lease - time.Second))
		until := d.now().Add(publishapi.Lease - time.Second)
		poll.Until(t, "the inspection renews its lease", func() bool { return u.stored(t).ClaimedUntil.After(until) })
		u.inspect(t).into(t, http.StatusAccepted, nil)
	}
	close(s.release)
	a := <-first
	a.into(t, http.StatusOK, nil)
	u.commit(t).into(t, http.StatusOK, nil)
	if n := d.faults.claims.count(); n != 1 {
		t.Errorf("it was inspected %d times", n)
	}
}

// stored returns the stored upload.
func (u *upload) stored(t testing.TB) registry.Upload {
	t.Helper()
	stored, err := u.catalog.Upload(t.Context(), u.Upload)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// A request inspects files until its turn is over. The next one continues.
func TestTurns(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.addKey(t, "acme", signer)
	u := d.begin(t, d.token(t, both), provider1, newRelease(t)).putAll(t)
	d.at(0)
	d.faults.opened = func(_ string, stored io.ReadCloser) (io.ReadCloser, error) {
		d.at(publishapi.Turn)
		return stored, nil
	}
	var first, second protocol.Inspected
	u.inspect(t).into(t, http.StatusAccepted, &first)
	if diff := cmp.Diff(protocol.Inspected{Files: 1}, first); diff != "" {
		t.Errorf("after a turn (-want +got):\n%s", diff)
	}
	if until := u.stored(t).ClaimedUntil; !until.IsZero() {
		t.Errorf("after a turn, the upload is claimed until %s", until)
	}
	u.commit(t).refused(t, golden.New(t), http.StatusConflict)
	u.inspect(t).into(t, http.StatusOK, &second)
	if diff := cmp.Diff(protocol.Inspected{Passed: true, Files: 2}, second); diff != "" {
		t.Errorf("after another turn (-want +got):\n%s", diff)
	}
	if n := d.faults.claims.count(); n != 2 {
		t.Errorf("%d inspections of 2 files", n)
	}
	u.commit(t).into(t, http.StatusOK, nil)
}

// A panic in a reader does not block further inspections.
func TestPanickingInspection(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := openWith(t, time.Millisecond)
	d.failing = true
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t)
	d.faults.opened = func(string, io.ReadCloser) (io.ReadCloser, error) { panic("at the disco") }
	u.inspect(t).refused(t, texts, http.StatusInternalServerError)
	d.faults.opened = nil
	before := u.stored(t).ClaimedUntil
	time.Sleep(50 * time.Millisecond)
	if after := u.stored(t).ClaimedUntil; !after.Equal(before) {
		t.Errorf("claimed until %s, and before until %s", after, before)
	}
	d.at(publishapi.Lease + time.Second)
	u.inspect(t).into(t, http.StatusOK, nil)
}

// FuzzBegin announces any text. It is accepted or rejected, and never a fault.
func FuzzBegin(f *testing.F) {
	f.Add(
		true,
		[]byte(
			`{"files": [{"name": "vpc.tar.gz", "size": 7, "sha256": `+
				`"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}], "content_sha256": "", "description": "x"}`,
		),
	)
	f.Add(
		false,
		[]byte(
			`{"protocols": ["6.0"], "sums": "eA==", "signature": "eA==", "manifest": "e30=", "files": [{"name": `+
				`"terraform-provider-inventory_1.0.0_linux_amd64.zip", "size": 7, `+
				`"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}]}`,
		),
	)
	f.Add(true, []byte(`{"files": [{"name": "..", "size": -1, "sha256": "x"}]}`))
	f.Add(false, bytes.Repeat([]byte("["), 1000))
	d := open(f)
	d.addKey(f, "acme", signer)
	token := d.token(f, both)
	var begun atomic.Int64
	f.Fuzz(func(t *testing.T, module bool, body []byte) {
		path := provider1
		if module {
			path = module1
		}
		a := d.send(t, token, http.MethodPost, protocol.PublishPath+path+"/uploads", string(body))
		switch a.status {
		case http.StatusCreated:
			if begun.Add(1) > 1 && len(a.body) == 0 {
				t.Error("the body of the response is empty")
			}
			u := upload{testAPI: d, token: token, path: path}
			a.into(t, http.StatusCreated, &u.Begun)
			u.abort(t).into(t, http.StatusNoContent, nil)
		case http.StatusBadRequest:
			if text := a.text(); text == "" || text == "malformed request" {
				t.Errorf("%q is rejected without a reason", body)
			}
		default:
			t.Errorf("%q: %d %s", body, a.status, a.body)
		}
	})
}
