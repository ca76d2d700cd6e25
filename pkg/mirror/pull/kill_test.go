package pull_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

var errKilled = errors.New("the process was killed")

// process counts the calls of a worker process, and kills it at one of them.
type process struct {
	killAt int  // the call, from 1; 0 means none
	after  bool // whether that call still takes effect
	end    context.CancelFunc

	mu         sync.Mutex
	calls      int
	killed     bool
	partitions []string       // of all written items
	deletes    int            // of items
	stored     map[string]int // how often each object was stored
}

// call makes a call of the process, unless it was killed.
func (p *process) call(effect func() error) error {
	p.mu.Lock()
	p.calls++
	now := p.calls == p.killAt
	killed := p.killed
	p.killed = p.killed || now
	p.mu.Unlock()
	if killed || now && !p.after {
		if now {
			p.end()
		}
		return errKilled
	}
	err := effect()
	if now {
		p.end()
		return errKilled
	}
	return err
}

// killableTable is the table as a process uses it.
type killableTable struct {
	catalog.Table
	*process
}

func (m killableTable) Get(ctx context.Context, k catalog.Key) (item catalog.Item, err error) {
	err = m.call(func() (err error) {
		item, err = m.Table.Get(ctx, k)
		return err
	})
	return item, err
}

func (m killableTable) Snapshot(ctx context.Context, keys ...catalog.Key) (items []catalog.Item, err error) {
	err = m.call(func() (err error) {
		items, err = m.Table.Snapshot(ctx, keys...)
		return err
	})
	return items, err
}

func (m killableTable) Query(ctx context.Context, q catalog.Query) (page catalog.Page, err error) {
	err = m.call(func() (err error) {
		page, err = m.Table.Query(ctx, q)
		return err
	})
	return page, err
}

func (m killableTable) Write(ctx context.Context, changes ...catalog.Change) error {
	return m.call(func() error {
		m.mu.Lock()
		for _, c := range changes {
			m.partitions = append(m.partitions, c.Partition)
			if c.Delete {
				m.deletes++
			}
		}
		m.mu.Unlock()
		return m.Table.Write(ctx, changes...)
	})
}

// killableStore is the object store as a process uses it.
type killableStore struct {
	*memoryStore
	*process
}

func (m killableStore) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	return m.call(func() error {
		err := m.memoryStore.PutOnce(ctx, key, body, digest)
		if err == nil {
			m.process.mu.Lock()
			defer m.process.mu.Unlock()
			m.stored[key]++
		}
		return err
	})
}

func (m killableStore) Open(ctx context.Context, key string, offset, length int64) (body io.ReadCloser, err error) {
	err = m.call(func() (err error) {
		body, err = m.memoryStore.Open(ctx, key, offset, length)
		return err
	})
	return body, err
}

func (m killableStore) Stat(ctx context.Context, key string) (info objects.Info, err error) {
	err = m.call(func() (err error) {
		info, err = m.memoryStore.Stat(ctx, key)
		return err
	})
	return info, err
}

// runProcess runs a pull of a version in a process. It returns what the process
// did, and the error with which it ended.
func (s setup) runProcess(ctx context.Context, killAt int, after bool) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &process{killAt: killAt, after: after, end: cancel, stored: make(map[string]int)}
	w := newWorker(s.origin, killableTable{s.table, p}, killableStore{s.objects, p}, 1<<20)
	err := run(ctx, w, inventory, "1.0.0")
	return p, err
}

// A worker that is killed at any of its reads and writes leaves nothing half
// done, and the next one completes the copy.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
		wanted := fakeVersion{inventory, "1.0.0", both}
		calls := 0
		bubble(t, newMemoryOrigin(t, wanted), limited(mode), func(t *testing.T, s setup) {
			p, err := s.runProcess(t.Context(), 0, false)
			if err != nil {
				t.Fatal(err)
			}
			s.checkComplete(t, wanted, p)
			checkWrites(t, p)
			calls = p.calls
		})
		t.Logf("%s: a pull makes %d calls, each of which is one point before and one after it", mode, calls)
		for at := range calls {
			for _, after := range []bool{false, true} {
				when := map[bool]string{false: "before", true: "after"}[after]
				t.Run(fmt.Sprintf("%s/%s call %d", mode, when, at+1), func(t *testing.T) {
					t.Parallel()
					bubble(t, newMemoryOrigin(t, wanted), limited(mode), func(t *testing.T, s setup) {
						s.kill(t, wanted, at+1, after)
					})
				})
			}
		}
	}
}

// limited returns a policy whose budget is used up by two copies.
func limited(mode registry.PullMode) registry.MirrorPolicy {
	p := allow(mode)
	p.Budget.Packages = 2 * len(both)
	return p
}

// kill kills a process at a call, and makes others complete its work.
func (s setup) kill(t *testing.T, v fakeVersion, at int, after bool) {
	first, _ := s.runProcess(t.Context(), at, after)
	if first.calls < at {
		t.Fatalf("it ended after %d calls", first.calls)
	}
	s.checkOffers(t, v)
	processes := []*process{first}
	for range 3 { // times over which leases and cached answers expire
		time.Sleep(time.Minute + 2*time.Second)
		again, err := s.runProcess(t.Context(), 0, false)
		if err != nil {
			t.Fatalf("the next process: %v", err)
		}
		processes = append(processes, again)
		if s.mirrored(t, v.provider, v.version) != "" {
			break
		}
		s.checkOffers(t, v)
	}
	if _, err := s.worker().Do(t.Context(), protocol.PullRequest{Action: protocol.PullNightly}); err != nil {
		t.Errorf("the next night: %v", err)
	}
	s.checkComplete(t, v, processes...)
}

// checkOffers checks that what clients see is complete, and has been verified.
func (s setup) checkOffers(t *testing.T, v fakeVersion) {
	t.Helper()
	s.verify(t, false)
	found, err := s.catalog.Mirror.PulledVersion(t.Context(), v.provider, number(t, v.version))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	if found.Problem != "" {
		t.Errorf("the version has the problem %q", found.Problem)
	}
	if found.Archives == nil {
		return
	}
	var platforms []string
	for _, a := range found.Archives {
		platforms = append(platforms, a.String())
		if want := providerfiles.Sum(v.content(t, a.String())); a.SHA256 != want {
			t.Errorf("%s is offered with sha256 %s, want %s", a, a.SHA256, want)
		}
	}
	if diff := cmp.Diff(v.platforms, platforms); diff != "" {
		t.Errorf("the offered platforms (-want +got):\n%s", diff)
	}
}

// verify checks that `larder verify` finds nothing wrong.
func (s setup) verify(t *testing.T, atRest bool) {
	t.Helper()
	report, err := verify.Verifier{Catalog: s.catalog, Objects: s.objects, AtRest: atRest}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	findings := slices.DeleteFunc(report.Findings, func(f verify.Finding) bool {
		// The policy of the tests was not read from a text. A worker that was killed
		// can leave objects for the next one.
		return f.Path == "policy/mirror" || !atRest && f.Kind == verify.ObjectWithoutVersion
	})
	if diff := cmp.Diff([]verify.Finding{}, findings); diff != "" {
		t.Errorf("verify finds (-want +got):\n%s", diff)
	}
}

// checkComplete checks that a version is mirrored, and was stored once in all
// processes together.
func (s setup) checkComplete(t *testing.T, v fakeVersion, processes ...*process) {
	t.Helper()
	want := make(map[string][]byte)
	once := make(map[string]int)
	for _, p := range v.platforms {
		content := v.content(t, p)
		platform, err := registry.ParsePlatform(p)
		if err != nil {
			t.Fatal(err)
		}
		n := number(t, v.version)
		key := v.provider.FileKey(n, providerfiles.Sum(content), v.provider.Filename(n, platform))
		want[key], once[key] = content, 1
	}
	s.origin.set(func() {
		for _, name := range []string{"SHA256SUMS", "SHA256SUMS.sig"} {
			content := s.origin.pages[v.base()+name]
			key := v.provider.FileKey(number(t, v.version), providerfiles.Sum(content),
				"terraform-provider-"+v.provider.Name+"_"+v.version+"_"+name)
			want[key], once[key] = content, 1
		}
	})
	if got := s.mirrored(t, v.provider, v.version); got != strings.Join(v.platforms, " ") {
		t.Errorf("it is mirrored for %q, want %q", got, v.platforms)
	}
	if diff := cmp.Diff(want, s.stored(t)); diff != "" {
		t.Errorf("the stored objects (-want +got):\n%s", diff)
	}
	times := make(map[string]int)
	for _, one := range processes {
		for key, n := range one.stored {
			times[key] += n
		}
	}
	if diff := cmp.Diff(once, times); diff != "" {
		t.Errorf("how often each object was stored (-want +got):\n%s", diff)
	}
	s.verify(t, true)
	found, err := s.catalog.Mirror.Pulled(t.Context(), v.provider)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Pending) > 0 {
		t.Errorf("%v is still wanted", found.Pending)
	}
}

// stored returns all objects.
func (s setup) stored(t *testing.T) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	if err := s.objects.Walk(t.Context(), "", func(info objects.Info) error {
		body, err := s.objects.Open(t.Context(), info.Key, 0, -1)
		if err != nil {
			return err
		}
		defer body.Close()
		var content bytes.Buffer
		_, err = content.ReadFrom(body)
		found[info.Key] = content.Bytes()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// checkWrites checks that a process needs no more than the permissions of its
// role: it writes to few partitions, and deletes nothing.
func checkWrites(t *testing.T, worker *process) {
	t.Helper()
	if worker.deletes > 0 {
		t.Errorf("it deleted %d items", worker.deletes)
	}
	for _, p := range worker.partitions {
		switch {
		case strings.HasPrefix(p, "mirror/"), strings.HasPrefix(p, "audit/"), p == "catalog/mirror":
		default:
			t.Errorf("it wrote to partition %s", p)
		}
	}
	if len(worker.partitions) == 0 {
		t.Error("it wrote nothing")
	}
}
