// Package calls_test counts the calls of the table, of the object store and of
// origins that each operation makes. testdata/calls.golden has the counts. More
// calls cost money and time, so a change of any count needs a reason.
package calls_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// row has the counts of an operation.
type row struct {
	name string
	count
}

// TestCalls compares the calls of each operation with the golden file. SQLite
// and DynamoDB get the same calls.
func TestCalls(t *testing.T) {
	onSQLite, onDynamoDB := format(measure(t, openSQLite)), format(measure(t, openDynamoDB))
	if lines := diff.Diff("SQLite", onSQLite, "DynamoDB", onDynamoDB); lines != nil {
		t.Errorf("the calls differ:\n%s", lines)
	}
	golden.Equal(t, "testdata/calls.golden", onDynamoDB)
}

// measure counts the calls of all operations on a kind of registry.
func measure(t *testing.T, open func(*testing.T) *countedRegistry) (rows []row) {
	t.Helper()
	r := open(t)
	// Each operation depends on the ones before it.
	for _, operations := range [][]operation{
		r.publishing(t), r.mirroring(t), r.reading(t), r.listing(), r.deprecating(t), r.withdrawing(),
		r.publishingLarge(t), r.counting(),
	} {
		rows = append(rows, r.count(t, operations)...)
	}
	for _, inFunctions := range []bool{false, true} {
		rows = append(rows, pulls(t, open, inFunctions)...)
	}
	return rows
}

// pulls counts the calls of a pull.
func pulls(t *testing.T, open func(*testing.T) *countedRegistry, inFunctions bool) (rows []row) {
	t.Helper()
	begin := time.Now().Truncate(24 * time.Hour).Add(36 * time.Hour) // noon, so that no day ends
	// In a bubble, no lease needs to be renewed on a slow machine.
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin)) // the key is not younger
		r := open(t)
		rows = r.count(t, r.pulling(t, inFunctions))
	})
	return rows
}

// count runs operations, and counts their calls. On DynamoDB, each call of the
// table must be one request.
func (r *countedRegistry) count(t *testing.T, operations []operation) (rows []row) {
	t.Helper()
	for _, o := range operations {
		r.take()
		if r.dynamo != nil {
			r.dynamo.Reads()
		}
		if err := o.run(t); err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		c := r.take()
		rows = append(rows, row{o.name, c})
		if r.dynamo == nil {
			continue
		}
		sent := r.dynamo.Reads()
		calls := c.reads() + c.Write.Calls
		if requests := sent.GetItem + sent.TransactGetItems + sent.Query + sent.Other; requests != calls {
			t.Errorf("%s: %d requests to DynamoDB, want one for each of %d calls", o.name, requests, calls)
		}
	}
	return rows
}

// format returns the golden file: a line for each operation.
func format(rows []row) []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "operation\treads\twrites\tGet\tSnapshot\titems\tQuery\titems\titems written\tconflicts\t"+
		"object reads\tobject writes\torigin")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", r.name, r.reads(), r.Write.Calls,
			r.Get.Calls, r.Snapshot.Calls, r.Snapshot.Items, r.Query.Calls, r.Query.Items, r.Write.Items, r.Conflicts,
			r.ObjectReads, r.ObjectWrites, r.Origin)
	}
	_ = w.Flush() // it writes to memory
	return out.Bytes()
}

// If the store has the files of a new upload already, the client sends none of
// them again.
func TestStoredFilesAreNotSent(t *testing.T) {
	t.Parallel()
	const zips, size = 2, 1 << 20
	for name, test := range map[string]struct {
		stored      bool
		least, most int // bytes
	}{
		"no file is stored":    {false, zips * size, 2 * zips * size},
		"all files are stored": {true, 1, size / 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openSQLite(t)
			p := rules.Provider{Dir: release(t, provider.Type, stock.Version(1), zips, size).Dir, Address: provider}
			if test.stored {
				r.stage(t, p)
			}
			r.take()
			if err := r.providerThrough(r.token(t, "publish:*/acme/**"), p, false)(t); err != nil {
				t.Fatal(err)
			}
			if sent := r.take().Sent; sent < test.least || sent > test.most {
				t.Errorf("the client has sent %d bytes, want %d to %d", sent, test.least, test.most)
			}
		})
	}
}

// stage stores the zips of a provider like an unfinished upload.
func (r *countedRegistry) stage(t *testing.T, p rules.Provider) {
	t.Helper()
	prepared, err := rules.Preparer{}.Provider(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepared.Zips() {
		file, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		key := registry.UploadKey(p.Address.Path(), prepared.Record.Version, f.SHA256, f.Name)
		if err := r.objects.PutStaged(t.Context(), key, file, objects.Digest{SHA256: f.SHA256, Size: f.Size}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTwoAtOnce publishes two providers of a namespace, signed with the same
// key, at the same time. Each reads its conditions before either writes, and
// neither has to try again.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *countedRegistry{"SQLite": openSQLite, "DynamoDB": openDynamoDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			for n := range 3 {
				r.take()
				group, ctx := errgroup.WithContext(t.Context())
				kinds := []string{"left", "right"}
				var reading sync.WaitGroup
				reading.Add(len(kinds))
				var writes atomic.Int32
				r.table.beforeWrite = func(context.Context) error {
					if int(writes.Add(1)) <= len(kinds) { // later ones are repeated after a conflict
						reading.Done()
						reading.Wait()
					}
					return nil
				}
				for _, kind := range kinds {
					files := release(t, kind, stock.Version(n+1), 1, 0)
					address := registry.Provider{Namespace: provider.Namespace, Type: kind}
					group.Go(func() error {
						_, err := r.publisher().Provider(ctx, rules.Provider{Dir: files.Dir, Address: address})
						return err
					})
				}
				if err := group.Wait(); err != nil {
					t.Fatal(err)
				}
				c := r.take()
				got := map[string]int{"reads": c.reads(), "writes": c.Write.Calls, "conflicts": c.Conflicts}
				if diff := cmp.Diff(map[string]int{"reads": 6, "writes": 2, "conflicts": 0}, got); diff != "" {
					t.Errorf("version %d of both (-want +got):\n%s", n+1, diff)
				}
			}
		})
	}
}
