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
	if _, err := c.Upload(t.Context(), "b"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
}

// An upload can end once. Later callers receive how it ended. An ended upload
// has no description.
func TestUpload(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	if _, err := c.Upload(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) {
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
		if got, err := c.Upload(t.Context(), id); err != nil || cmp.Diff(want, got) != "" {
			t.Error(cmp.Diff(want, got), err)
		}
		endUpload(t, c, id, hows[0], hows[0])
		for _, how := range hows {
			endUpload(t, c, id, how, hows[0])
		}
		want.Ended, want.Description = hows[0], "" // the version may be withdrawn before the item expires
		if got, err := c.Upload(t.Context(), id); err != nil || cmp.Diff(want, got) != "" {
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
		if _, err := c.Upload(t.Context(), "x"); !errors.Is(err, registry.ErrNotFound) {
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
		if ended, err := c.Upload(t.Context(), u.ID); err != nil || ended.Ended != registry.UploadCommitted {
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

// If an upload has expired by the clock of the table, the count of its owner's
// uploads is zero.
func TestExpiredUploads(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	for _, id := range []string{"a", "b"} {
		beginUpload(t, c, newUpload(id, "ada", -2*time.Hour), 2)
		if _, err := c.Upload(t.Context(), id); !errors.Is(err, registry.ErrNotFound) {
			t.Error(err)
		}
		if _, err := end(c, t.Context(), id, registry.UploadCommitted, begin); !errors.Is(err, registry.ErrNotFound) {
			t.Error(err)
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

// threeFiles returns an upload with three files.
func threeFiles(id, owner string) registry.Upload {
	u := newUpload(id, owner, 0)
	u.Files = append(u.Files, u.Files[0], u.Files[0])
	return u
}

// Only one request can inspect an upload until its claim expires. It inspects
// the files in their order.
func TestInspectionClaim(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := threeFiles("a", "ada")
	beginUpload(t, c, u, 1)
	claimAt := func(at time.Duration, wantFile int) *catalog.Claim {
		t.Helper()
		claimed := claim(t, c, u, begin.Add(at), 1000)
		if want := wantFile >= 0; claimed.Mine != want {
			t.Errorf("after %s: the claim is granted: %t, want %t", at, claimed.Mine, want)
		}
		if claimed.Mine && claimed.File != wantFile {
			t.Errorf("after %s: file %d, want %d", at, claimed.File, wantFile)
		}
		return claimed
	}
	const none = -1
	expired := claimAt(0, 0)
	claimAt(59*time.Second, none)
	first := claimAt(60*time.Second, 0)
	claimAt(61*time.Second, none)
	// From a request whose claim has expired.
	for what, write := range map[string]func(*catalog.Claim) error{
		"Renew":  func(c *catalog.Claim) error { return c.Renew(t.Context(), begin, begin.Add(time.Hour)) },
		"GiveUp": func(c *catalog.Claim) error { return c.GiveUp(t.Context(), begin, true) },
		"Record": func(c *catalog.Claim) error {
			return c.Record(t.Context(), registry.Inspection{State: registry.InspectionRefused}, begin, begin.Add(time.Hour))
		},
	} {
		old := *expired
		if err := write(&old); err != nil || old.Mine {
			t.Errorf("%s of an expired claim: the claim is granted: %t, %v", what, old.Mine, err)
		}
	}
	if err := first.Renew(t.Context(), begin, begin.Add(5*time.Minute)); err != nil || !first.Mine {
		t.Errorf("Renew: the claim is granted: %t, %v", first.Mine, err)
	}
	claimAt(4*time.Minute, none)
	pass(t, first, begin.Add(6*time.Minute))
	if !first.Mine || first.File != 1 {
		t.Errorf("after the first file: file %d, and the claim is granted: %t", first.File, first.Mine)
	}
	claimAt(5*time.Minute, none)
	giveUp(t, first, false)
	second := claimAt(5*time.Minute, 1)
	pass(t, second, time.Time{})
	third := claimAt(5*time.Minute, 2)
	pass(t, third, begin.Add(time.Hour))
	for _, done := range []*catalog.Claim{first, second, third} {
		if done.Mine {
			t.Error("an ended claim is still granted")
		}
	}
	claimAt(time.Hour, none)
	got, err := c.Upload(t.Context(), u.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := threeFiles("a", "ada")
	want.Claims = 4
	for i := range want.Files {
		want.Files[i].Inspection = registry.Inspection{State: registry.InspectionPassed, H1: fmt.Sprint("of ", i)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An ended upload is not inspected any further.
func TestInspectionOfEndedUpload(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := threeFiles("a", "ada")
	beginUpload(t, c, u, 1)
	claimed := claim(t, c, u, begin, 1)
	endUpload(t, c, "a", registry.UploadAborted, registry.UploadAborted)
	pass(t, claimed, begin.Add(time.Hour))
	if claimed.Mine {
		t.Error("the claim of an ended upload is granted")
	}
	got, err := c.Upload(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(registry.Inspection{Attempts: 1}, got.Files[0].Inspection); diff != "" {
		t.Errorf("the first file (-want +got):\n%s", diff)
	}
}

// A file whose inspection repeatedly starts and dies is rejected and not
// inspected again. An attempt that was given up does not count, and neither do
// those of other files.
func TestInspectionAttempts(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, die := range map[string]func(*testing.T, *catalog.Claim){
		"killed":         func(*testing.T, *catalog.Claim) {},
		"given up, died": func(t *testing.T, c *catalog.Claim) { t.Helper(); giveUp(t, c, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := catalog.New(open(t))
			u := threeFiles("a", "ada")
			beginUpload(t, c, u, 1)
			now := begin
			next := func() *catalog.Claim {
				t.Helper()
				now = now.Add(2 * time.Minute)
				return claim(t, c, u, now, 1)
			}
			for n := range 5 {
				claimed := next()
				if !claimed.Mine {
					t.Fatalf("attempt %d, after others that were given up, gets no claim", n+1)
				}
				giveUp(t, claimed, false)
			}
			die(t, next())
			die(t, next())
			pass(t, next(), now.Add(time.Minute)) // and starts the second file
			for n := range 2 {
				claimed := next()
				if !claimed.Mine || claimed.File != 1 {
					t.Fatalf("attempt %d of the second file gets no claim", n+2)
				}
				die(t, claimed)
			}
			for range 2 {
				claimed := next()
				if claimed.Mine {
					t.Error("after three failed attempts, the claim is granted")
				}
				if refused := claimed.Upload.Refused(); refused != 1 {
					t.Errorf("file %d is rejected, want 1", refused)
				}
				texts.Text(t, claimed.Upload.Files[1].Problem+"\n")
			}
		})
	}
}

// A claim of several files rejects a file that has failed too often before.
func TestAttemptsOfNextFile(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := threeFiles("a", "ada")
	u.Files[1].Attempts = 3
	beginUpload(t, c, u, 1)
	claimed := claim(t, c, u, begin, 1)
	pass(t, claimed, begin.Add(time.Hour))
	if claimed.Mine || claimed.Upload.Refused() != 1 {
		t.Errorf("the claim is granted: %t; file %d is rejected, want 1", claimed.Mine, claimed.Upload.Refused())
	}
}

// An identity can have a maximum number of running inspections in all its
// uploads, until they end or their claims expire.
func TestInspectionsOfOneOwner(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	for _, owner := range []string{"ada", "bob"} {
		for i := range 4 {
			u := threeFiles(fmt.Sprint(owner, i), owner)
			beginUpload(t, c, u, 4)
		}
	}
	claimAt := func(id string, at time.Duration, want bool) *catalog.Claim {
		t.Helper()
		u := threeFiles(id, id[:3])
		claimed := claim(t, c, u, begin.Add(at), 2)
		if claimed.Mine != want {
			t.Errorf("upload %s: the claim is granted: %t, want %t", id, claimed.Mine, want)
		}
		return claimed
	}
	first := claimAt("ada0", 0, true)
	second := claimAt("ada1", 0, true)
	claimAt("ada2", 0, false)
	claimAt("bob0", 0, true)
	pass(t, second, begin.Add(time.Minute)) // its claim continues
	claimAt("ada2", 0, false)
	pass(t, second, time.Time{})
	claimAt("ada2", 0, true)
	claimAt("ada3", 0, false)
	if err := first.Renew(t.Context(), begin, begin.Add(time.Hour/2)); err != nil {
		t.Fatal(err)
	}
	claimAt("ada3", 2*time.Minute, true) // the claim of ada2 has expired, that of ada0 has not
	claimAt("ada1", 2*time.Minute, false)
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
			if claim(t, c, u, begin, 1000).Mine {
				all.Add(1)
			}
		})
	}
	group.Wait()
	if all.Load() != 1 {
		t.Errorf("%d inspect", all.Load())
	}
}

// Inspections of one owner at once change one item. Each result is recorded.
func TestClaimsAtOnce(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	var group sync.WaitGroup
	for i := range 4 {
		u := threeFiles(fmt.Sprint(i), "ada")
		beginUpload(t, c, u, 4)
		group.Go(func() {
			for claimed := claim(t, c, u, begin, 4); claimed.Mine; {
				if err := claimed.Renew(t.Context(), begin, begin.Add(time.Minute)); err != nil {
					t.Error(err)
					return
				}
				pass(t, claimed, begin.Add(time.Minute))
			}
			if got, err := c.Upload(t.Context(), u.ID); err != nil || got.Pending() >= 0 || got.Claims != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	group.Wait()
}

// The largest upload fits into its item, with the results of its inspections. Its
// parts are at their limits in the packages publishapi and rules.
func TestLargeUpload(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	u := newUpload("a", "ada", 0)
	u.Description = strings.Repeat("d", 1000)
	u.Files = nil
	for i := range 200 { // the maximum number of platforms of a release
		name := fmt.Sprintf("%0250d", i)
		u.Files = append(u.Files, registry.UploadFile{
			Name: name,
			StoredFile: registry.StoredFile{
				Object: strings.Repeat("k", 400) + name, SHA256: strings.Repeat("0", 64), Size: 5 << 30,
			},
		})
	}
	for i := range 1000 { // the maximum number of lines and of major versions
		u.Sums += fmt.Sprintf("%064d  %064d\n", i, i)
		u.Protocols = append(u.Protocols, fmt.Sprintf("%d.999", i))
	}
	u.Signature = make([]byte, 16<<10)
	beginUpload(t, c, u, 1)
	for claimed := claim(t, c, u, begin, 1); claimed.Mine; {
		found := registry.Inspection{State: registry.InspectionPassed, H1: strings.Repeat("1", 47), Notes: []string{strings.Repeat("<", 200)}}
		if claimed.File == len(u.Files)-1 {
			found = registry.Inspection{
				State: registry.InspectionRefused, Problem: strings.Repeat("<", 2<<10), Hint: strings.Repeat("<", 2<<10),
			}
		}
		if err := claimed.Record(t.Context(), found, begin, begin.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
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
	u, err := c.Upload(ctx, id)
	if err != nil {
		return u, err
	}
	return c.EndUpload(ctx, id, u.Owner, how, now, func(registry.Upload) error { return nil })
}

// claim claims an upload for a minute.
func claim(t testing.TB, c *catalog.Catalog, u registry.Upload, now time.Time, most int) *catalog.Claim {
	t.Helper()
	claimed, err := c.ClaimInspection(
		t.Context(), u.ID, u.Owner, now, now.Add(time.Minute), most, func(registry.Upload) error { return nil },
	)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// giveUp ends a claim without a result.
func giveUp(t testing.TB, c *catalog.Claim, counts bool) {
	t.Helper()
	if err := c.GiveUp(t.Context(), begin, counts); err != nil {
		t.Fatal(err)
	}
}

// pass records that the claimed file has passed. The claim continues until a
// time, unless that is zero.
func pass(t testing.TB, c *catalog.Claim, until time.Time) {
	t.Helper()
	passed := registry.Inspection{State: registry.InspectionPassed, H1: fmt.Sprint("of ", c.File)}
	if err := c.Record(t.Context(), passed, begin, until); err != nil {
		t.Fatal(err)
	}
}
