package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// begin is the time at which tests begin uploads. By the clock of the table,
// these have not expired.
var begin = time.Now().UTC().Truncate(time.Second)

func newUpload(id, owner string, at time.Duration) registry.Upload {
	return registry.Upload{
		ID: id, Path: "modules/acme/vpc/aws", Version: registry.Version{Major: 1}, Owner: owner, Description: id,
		Files: []registry.UploadFile{
			{Name: "vpc.tar.gz", StoredFile: registry.StoredFile{Object: "modules/x", SHA256: "0", Size: 7}},
		},
		CreatedAt: begin.Add(at), ExpiresAt: begin.Add(at + time.Hour),
	}
}

func beginUpload(t testing.TB, c *catalog.Catalog, u registry.Upload, most int) {
	t.Helper()
	if _, err := c.BeginUpload(t.Context(), u, most); err != nil {
		t.Fatalf("BeginUpload(%s): %v", u.ID, err)
	}
}

func endUpload(t testing.TB, c *catalog.Catalog, id, how, want string) {
	t.Helper()
	u, err := end(c, t.Context(), id, how, begin)
	if err != nil {
		t.Fatalf("EndUpload(%s, %s): %v", id, how, err)
	}
	if diff := cmp.Diff([]string{id, want}, []string{u.ID, u.Ended}); diff != "" {
		t.Errorf("EndUpload(%s, %s): ID and Ended (-want +got):\n%s", id, how, diff)
	}
}

// Beginning the same upload again continues the existing one, unless that one
// is about to expire.
func TestBeginAgain(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	again := func(id, owner string, at time.Duration, version uint64, want string) {
		t.Helper()
		u := newUpload(id, owner, at)
		u.Version.Major, u.Description = version, ""
		got, err := c.BeginUpload(t.Context(), u, 9)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if diff := cmp.Diff([]string{want, owner}, []string{got.ID, got.Owner}); diff != "" {
			t.Errorf("%s: ID and Owner (-want +got):\n%s", id, diff)
		}
		if diff := cmp.Diff(u.Version, got.Version); diff != "" {
			t.Errorf("%s: Version (-want +got):\n%s", id, diff)
		}
	}
	again("a", "ada", 0, 1, "a")
	again("b", "ada", time.Minute, 1, "a")
	again("c", "bob", time.Minute, 1, "c")
	again("d", "ada", time.Minute, 2, "d")
	again("e", "ada", 31*time.Minute, 1, "e")
	endUpload(t, c, "e", registry.UploadAborted, registry.UploadAborted)
	again("f", "ada", 32*time.Minute, 1, "f")
	if _, err := uploaded(c, t.Context(), "b"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
}

// An upload can end once. Later callers receive how it ended. An ended upload
// has no description.
func TestUpload(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	if _, err := uploaded(c, t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	if _, err := end(c, t.Context(), "a", registry.UploadCommitted, begin); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	for id, hows := range map[string][]string{
		"a": {registry.UploadCommitted, registry.UploadAborted}, "b": {registry.UploadAborted, registry.UploadCommitted},
	} {
		want := newUpload(id, "ada", 0)
		beginUpload(t, c, want, 9)
		if got, err := uploaded(c, t.Context(), id); err != nil || cmp.Diff(want, got) != "" {
			t.Error(cmp.Diff(want, got), err)
		}
		endUpload(t, c, id, hows[0], hows[0])
		for _, how := range hows {
			endUpload(t, c, id, how, hows[0])
		}
		want.Ended, want.Description = hows[0], "" // the version may be withdrawn before the item expires
		if got, err := uploaded(c, t.Context(), id); err != nil || cmp.Diff(want, got) != "" {
			t.Error(cmp.Diff(want, got), err)
		}
	}
}

// An owner's uploads count until they end or expire. Uploads of other owners do
// not count.
func TestOpenUploads(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	const most = 3
	full := func(at time.Duration) {
		t.Helper()
		if _, err := c.BeginUpload(
			t.Context(), newUpload("x", "ada", at), most,
		); !errors.Is(err, catalog.ErrTooManyUploads) || !errors.Is(err, registry.ErrForbidden) {
			t.Errorf("one more than the maximum of %d: %v", most, err)
		}
		if _, err := uploaded(c, t.Context(), "x"); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("a rejected upload is stored: %v", err)
		}
	}
	for i := range most {
		beginUpload(t, c, newUpload(fmt.Sprint("a", i), "ada", time.Duration(i)*time.Minute), most)
	}
	full(59 * time.Minute)
	beginUpload(t, c, newUpload("b", "bob", 0), most)
	beginUpload(t, c, newUpload("c", strings.Repeat("c", 3000)+"\n/", 0), most)
	endUpload(t, c, "a1", registry.UploadAborted, registry.UploadAborted)
	endUpload(t, c, "a1", registry.UploadAborted, registry.UploadAborted)
	endUpload(t, c, "b", registry.UploadCommitted, registry.UploadCommitted)
	beginUpload(t, c, newUpload("a3", "ada", 2*time.Minute), most)
	full(59 * time.Minute)
	// The first upload has expired, and the second has not.
	beginUpload(t, c, newUpload("a4", "ada", 61*time.Minute), most)
	full(61 * time.Minute)
	if _, err := c.BeginUpload(
		t.Context(), newUpload("x", "ada", 61*time.Minute), 1,
	); !errors.Is(err, catalog.ErrTooManyUploads) {
		t.Errorf("a lower limit: %v", err)
	}
	// When all uploads have ended, the count is zero again.
	for _, id := range []string{"a0", "a2", "a3", "a4"} {
		endUpload(t, c, id, registry.UploadAborted, registry.UploadAborted)
	}
	for i := range most {
		beginUpload(t, c, newUpload(fmt.Sprint("d", i), "ada", 2*time.Hour), most)
	}
	full(2 * time.Hour)
}

// A commit ends its upload in the same write as the publish, without updating
// the count. Beginning another upload notices that.
func TestCommittedUploads(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	vpc := module(t, "acme/vpc/aws")
	const most = 3
	for i := range 2 * most {
		u := newUpload(fmt.Sprint("a", i), "ada", 0)
		u.Version = parseVersion(t, fmt.Sprintf("1.%d.0", i))
		beginUpload(t, c, u, most)
		r := record(t, u.Version.String(), "a")
		makeRecord := func(context.Context, protocol.Document) (registry.ModuleVersion, error) { return r, nil }
		_, created, err := c.Modules.Commit(t.Context(), vpc, r.Version, "ada", makeRecord, u)
		if err != nil || !created {
			t.Fatal(created, err)
		}
		if ended, err := uploaded(c, t.Context(), u.ID); err != nil || ended.Ended != registry.UploadCommitted {
			t.Errorf("%+v, %v", ended, err)
		}
	}
	// The same content again is another upload.
	u := newUpload("b", "ada", 0)
	u.Version = parseVersion(t, fmt.Sprintf("1.%d.0", 2*most-1))
	if begun, err := c.BeginUpload(t.Context(), u, most); err != nil || begun.ID != "b" {
		t.Errorf("%+v, %v", begun, err)
	}
}

// If an upload has expired by the clock of the table, its inspections have too,
// and the count of its owner's uploads is zero.
func TestExpiredUploads(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	for _, id := range []string{"a", "b"} {
		u := newUpload(id, "ada", -2*time.Hour)
		beginUpload(t, c, u, 2)
		if err := setInspection(
			c, t.Context(), u, 0, registry.Inspection{State: registry.InspectionPassed}, begin,
		); err != nil {
			t.Fatal(err)
		}
		if _, err := uploaded(c, t.Context(), id); !errors.Is(err, registry.ErrNotFound) {
			t.Error(err)
		}
		if _, err := end(c, t.Context(), id, registry.UploadCommitted, begin); !errors.Is(err, registry.ErrNotFound) {
			t.Error(err)
		}
		if found, err := inspection(c, t.Context(), id, 0); !errors.Is(err, registry.ErrNotFound) {
			t.Error(found, err)
		}
	}
	for i := range 2 {
		beginUpload(t, c, newUpload(fmt.Sprint("c", i), "ada", 0), 2)
	}
	if _, err := c.BeginUpload(t.Context(), newUpload("d", "ada", 0), 2); !errors.Is(err, catalog.ErrTooManyUploads) {
		t.Error(err)
	}
}

// However many uploads begin and end concurrently, an owner never has more than
// the maximum, and no ended upload counts.
func TestUploadsAtOnce(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	const most = 3
	var begun, rejected atomic.Int64
	var under sync.Map
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			id := fmt.Sprint(i)
			switch _, err := c.BeginUpload(t.Context(), newUpload(id, "ada", 0), most); {
			case err == nil:
				begun.Add(1)
				under.Store(id, true)
			case errors.Is(err, catalog.ErrTooManyUploads):
				rejected.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if begun.Load() != most || rejected.Load() != 12-most {
		t.Errorf("%d uploads began and %d were rejected", begun.Load(), rejected.Load())
	}
	// Each upload is committed and aborted concurrently. One of the two wins,
	// for all callers.
	under.Range(func(id, _ any) bool {
		for _, how := range []string{registry.UploadCommitted, registry.UploadAborted, registry.UploadCommitted} {
			group.Go(func() {
				u, err := end(c, t.Context(), id.(string), how, begin)
				if err != nil {
					t.Error(err)
				}
				if before, there := under.Swap(id, u.Ended); there && before != true && before != u.Ended {
					t.Errorf("%s has ended as %s and %s", id, before, u.Ended)
				}
			})
		}
		return true
	})
	group.Wait()
	for i := range most {
		beginUpload(t, c, newUpload(fmt.Sprint("again", i), "ada", 0), most)
	}
	if _, err := c.BeginUpload(t.Context(), newUpload("x", "ada", 0), most); !errors.Is(err, catalog.ErrTooManyUploads) {
		t.Error(err)
	}
}

// Only one caller can inspect a file until its claim expires. Others receive
// that the inspection is running.
func TestInspectionClaim(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := newUpload("a", "ada", 0)
	beginUpload(t, c, u, 1)
	claimAt := func(at time.Duration, wantState string, wantMine bool) {
		t.Helper()
		now := begin.Add(at)
		found, mine, err := claim(c, t.Context(), u, 0, now, now.Add(time.Minute), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if found.State != wantState {
			t.Errorf("after %s: state %q, want %q", at, found.State, wantState)
		}
		if mine != wantMine {
			t.Errorf("after %s: the claim is granted: %t, want %t", at, mine, wantMine)
		}
	}
	set := func(i registry.Inspection) {
		t.Helper()
		if err := setInspection(c, t.Context(), u, 0, i, begin); err != nil {
			t.Fatal(err)
		}
	}
	claimAt(0, registry.InspectionRunning, true)
	claimAt(59*time.Second, registry.InspectionRunning, false)
	claimAt(60*time.Second, registry.InspectionRunning, true) // the claim has expired
	claimAt(61*time.Second, registry.InspectionRunning, false)
	// From an attempt whose claim has expired.
	set(registry.Inspection{State: registry.InspectionRunning, Until: begin.Add(time.Hour), Attempts: 1})
	claimAt(2*time.Minute, registry.InspectionRunning, true)
	// Renews the claim.
	set(registry.Inspection{State: registry.InspectionRunning, Until: begin.Add(5 * time.Minute), Attempts: 3})
	claimAt(4*time.Minute, registry.InspectionRunning, false)
	set(registry.Inspection{Attempts: 3}) // gives up the claim
	claimAt(4*time.Minute, registry.InspectionRunning, true)
	want := registry.Inspection{State: registry.InspectionPassed, ContentSHA256: "1"}
	set(want)
	// A result does not change, whatever is recorded later.
	for _, late := range []registry.Inspection{
		{}, {State: registry.InspectionRunning, Until: begin.Add(time.Hour)},
		{State: registry.InspectionRefused, Problem: "bad"}, {State: registry.InspectionPassed, ContentSHA256: "2"},
	} {
		set(late)
		claimAt(time.Hour, registry.InspectionPassed, false)
		if got, err := inspection(c, t.Context(), "a", 0); err != nil || cmp.Diff(want, got) != "" {
			t.Error(cmp.Diff(want, got), err)
		}
	}
	// Other files have their own inspections, even if their numbers begin with
	// the same digit.
	for _, file := range []int{1, 10, 100} {
		if found, mine, err := claim(c, t.Context(), u, file, begin, begin.Add(time.Minute), 1000); err != nil || !mine {
			t.Errorf("%+v, %v", found, err)
		}
		if err := setInspection(
			c, t.Context(), u, file, registry.Inspection{State: registry.InspectionRefused, Problem: "bad"}, begin,
		); err != nil {
			t.Error(err)
		}
		found, mine, err := claim(c, t.Context(), u, file, begin, begin.Add(time.Minute), 1000)
		if err != nil || mine {
			t.Errorf("the claim is granted: %t, %v", mine, err)
		}
		if found.Problem != "bad" {
			t.Errorf("the problem is %q", found.Problem)
		}
	}
}

// A file whose inspection repeatedly starts and dies is rejected and not
// inspected again. An attempt that was given up does not count.
func TestInspectionAttempts(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := newUpload("a", "ada", 0)
	beginUpload(t, c, u, 1)
	claimAt := func(n int) (registry.Inspection, bool) {
		t.Helper()
		now := begin.Add(time.Duration(n) * time.Hour / 10)
		found, mine, err := claim(c, t.Context(), u, 0, now, now.Add(time.Minute), 1)
		if err != nil {
			t.Fatal(err)
		}
		return found, mine
	}
	for n := range 5 {
		if _, mine := claimAt(n); !mine {
			t.Errorf("attempt %d, after others that were given up, gets no claim", n+1)
		}
		if err := setInspection(c, t.Context(), u, 0, registry.Inspection{Attempts: 1}, begin); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		if _, mine := claimAt(10 + n); !mine {
			t.Errorf("attempt %d gets no claim", n+1)
		}
	}
	texts := golden.New(t)
	for n := range 2 {
		found, mine := claimAt(20 + n)
		if mine || found.State != registry.InspectionRefused {
			t.Errorf("after three failed attempts: %+v, %t", found, mine)
		}
		if !strings.Contains(found.Problem, " 3 ") {
			t.Errorf("the reason is %q without the number of attempts", found.Problem)
		}
		texts.Text(t, found.Problem+"\n")
	}
}

// An identity can have a maximum number of running inspections in all its
// uploads, until they end or their claims expire.
func TestInspectionsOfOneOwner(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	one, two, other := newUpload("a", "ada", 0), newUpload("b", "ada", 0), newUpload("c", "bob", 0)
	two.Description = "another"
	for _, u := range []registry.Upload{one, two, other} {
		beginUpload(t, c, u, 2)
	}
	claimAt := func(u registry.Upload, file int, at time.Duration, want bool) {
		t.Helper()
		now := begin.Add(at)
		found, mine, err := claim(c, t.Context(), u, file, now, now.Add(time.Minute), 2)
		if err != nil {
			t.Fatal(err)
		}
		if mine != want {
			t.Errorf("file %d of upload %s: the claim is granted: %t, want %t", file, u.ID, mine, want)
		}
		if found.State != registry.InspectionRunning {
			t.Errorf("file %d of upload %s: state %q", file, u.ID, found.State)
		}
	}
	claimAt(one, 0, 0, true)
	claimAt(two, 0, 0, true)
	claimAt(one, 1, 0, false)
	claimAt(other, 0, 0, true)
	if err := setInspection(
		c, t.Context(), two, 0, registry.Inspection{State: registry.InspectionPassed}, begin,
	); err != nil {
		t.Fatal(err)
	}
	claimAt(one, 1, 0, true)
	claimAt(one, 2, 0, false)
	if err := setInspection(
		c, t.Context(), one, 0,
		registry.Inspection{State: registry.InspectionRunning, Until: begin.Add(time.Hour / 2), Attempts: 1}, begin,
	); err != nil {
		t.Fatal(err)
	}
	claimAt(one, 2, 2*time.Minute, true) // the claim of file 1 has expired, that of file 0 has not
	claimAt(one, 3, 2*time.Minute, false)
}

// If several callers claim an inspection concurrently, one succeeds.
func TestInspectionsAtOnce(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := newUpload("a", "ada", 0)
	beginUpload(t, c, u, 1)
	var all atomic.Int64
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			found, mine, err := claim(c, t.Context(), u, 0, begin, begin.Add(time.Minute), 1000)
			if err != nil || found.State != registry.InspectionRunning {
				t.Errorf("%+v, %v", found, err)
			}
			if mine {
				all.Add(1)
			}
		})
	}
	group.Wait()
	if all.Load() != 1 {
		t.Errorf("%d inspect", all.Load())
	}
}

// The largest upload, and the largest SHA256SUMS that the registry reads, fit
// into their items.
func TestLargeUpload(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := newUpload("a", "ada", 0)
	u.Description = strings.Repeat("d", 1000)
	u.Files = nil
	for i := range 203 { // the maximum number of platforms of a release, and its other files
		name := fmt.Sprintf("%0250d", i)
		u.Files = append(u.Files, registry.UploadFile{
			Name: name,
			StoredFile: registry.StoredFile{
				Object: strings.Repeat("k", 400) + name, SHA256: strings.Repeat("0", 64), Size: 5 << 30,
			},
		})
	}
	beginUpload(t, c, u, 1)
	sums := make(map[string]string)
	for i := range 1000 {
		sums[fmt.Sprintf("%0255d", i)] = strings.Repeat("0", 64)
	}
	want := registry.Inspection{State: registry.InspectionPassed, Sums: sums}
	if err := setInspection(c, t.Context(), u, 0, want, begin); err != nil {
		t.Fatal(err)
	}
	if got, err := inspection(c, t.Context(), "a", 0); err != nil || cmp.Diff(want, got) != "" {
		t.Error(err)
	}
	// An owner with the maximum configurable number of uploads fits too.
	for i := range 100 {
		beginUpload(t, c, newUpload(fmt.Sprintf("%026d", i), "bob", 0), 100)
	}
}

func TestHasNamespace(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	has := func(name string, want bool) {
		t.Helper()
		if got, err := c.HasNamespace(t.Context(), name); err != nil || got != want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	has("acme", false)
	beginUpload(t, c, newUpload("a", "ada", 0), 1)
	has("acme", false)
	publish(t, c, module(t, "acme/vpc/aws"), record(t, "1.0.0", "a"))
	has("acme", true)
	has("acm", false)
	has("", false)
	if _, err := c.AddSigningKey(t.Context(), "other", registry.SigningKey{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	has("other", true)
}

// If any call of the table fails, whether or not its write was made, the upload
// counts once or not at all.
func TestUploadFailsAtEachCall(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		for at := int64(1); ; at++ {
			table := open(t)
			good := catalog.New(table)
			faulty := &tabletest.Faulty{Table: table, FailAt: at, Done: done}
			c := catalog.New(faulty)
			_, err := c.BeginUpload(t.Context(), newUpload("a", "ada", 0), 1)
			if err == nil {
				_, err = end(c, t.Context(), "a", registry.UploadAborted, begin)
			}
			if err == nil {
				_, err = c.HasNamespace(t.Context(), "acme")
			}
			if err == nil {
				break
			}
			if !errors.Is(err, tabletest.ErrFault) {
				t.Fatalf("call %d: %v", at, err)
			}
			if _, err := end(
				good, t.Context(), "a", registry.UploadAborted, begin,
			); err != nil && !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("call %d: %v", at, err)
			}
			beginUpload(t, good, newUpload("b", "ada", 0), 1)
			if at > 20 {
				t.Fatal("it does not end")
			}
		}
	}
}

// end ends an upload of any owner.
func end(c *catalog.Catalog, ctx context.Context, id, how string, now time.Time) (registry.Upload, error) {
	u, _, err := c.Upload(ctx, id)
	if err != nil {
		return u, err
	}
	return c.EndUpload(ctx, id, u.Owner, how, now, func(registry.Upload) error { return nil })
}

func uploaded(c *catalog.Catalog, ctx context.Context, id string) (registry.Upload, error) {
	u, _, err := c.Upload(ctx, id)
	return u, err
}

func inspection(c *catalog.Catalog, ctx context.Context, id string, file int) (i registry.Inspection, err error) {
	_, found, err := c.Upload(ctx, id)
	if file < len(found) {
		i = found[file]
	}
	return i, err
}

func claim(
	c *catalog.Catalog, ctx context.Context, u registry.Upload, file int, now, until time.Time, most int,
) (registry.Inspection, bool, error) {
	claimed, err := c.ClaimInspection(
		ctx, u.ID, u.Owner, file, now, until, most, func(registry.Upload) error { return nil },
	)
	if err != nil {
		return registry.Inspection{}, false, err
	}
	return claimed.Found, claimed.Mine, nil
}

// setInspection records the result of another caller's claim.
func setInspection(
	c *catalog.Catalog, ctx context.Context, u registry.Upload, file int, i registry.Inspection, now time.Time,
) error {
	return c.RecordInspection(ctx, &catalog.Claim{Upload: u, File: file}, i, now)
}
