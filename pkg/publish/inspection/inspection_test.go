package inspection_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

// TestMain lets a Process start this program as a child.
func TestMain(m *testing.M) {
	inspection.SetDocument(document)
	inspection.RunIfChild()
	os.Exit(m.Run())
}

// pack returns a module with one file.
func pack(t *testing.T, text string) []byte {
	t.Helper()
	return packAll(t, map[string]string{"main.tf": text})
}

// packAll returns a module with several files.
func packAll(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func moduleRequest(packed []byte) inspection.Request {
	return inspection.Request{Kind: inspection.Module, Size: int64(len(packed))}
}

// TestSame checks that a child and this process return the same results, errors
// and hints.
func TestSame(t *testing.T) {
	t.Parallel()
	large := make([]byte, 3<<20) // more than a child reads at once
	for i := range large {
		large[i] = byte(i * i >> 8)
	}
	for name, packed := range map[string][]byte{
		"a module":       pack(t, "output \"x\" {\n  value = 1\n}\n"),
		"a wrong module": pack(t, "output {\n"),
		"a bad archive":  []byte("hello"),
		"nothing":        {},
		"a long problem": pack(t, "x = \"%{"+strings.Repeat("a", 280_000)+"}\"\n"),
		"a large module": append(pack(t, "x = 1\n"), large...),
		"a large file":   pack(t, strings.Repeat("#\n", 1<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkSame(t, moduleRequest(packed), packed)
		})
	}
	t.Run("a secret", func(t *testing.T) {
		t.Parallel()
		packed := pack(t, "# "+registry.FormatToken([32]byte{1})+"\n")
		request := moduleRequest(packed)
		if err := checkSame(t, request, packed); err != nil {
			t.Errorf("secrets do not matter: %v", err)
		}
		request.New = true
		if err := checkSame(t, request, packed); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("got error %v, want ErrInvalid", err)
		}
		request.AllowSecrets = []string{"main.tf"}
		if err := checkSame(t, request, packed); err != nil {
			t.Errorf("secrets are allowed: %v", err)
		}
	})
	t.Run("a module that no client loads", func(t *testing.T) {
		t.Parallel()
		packed := pack(t, "varible \"x\" {}\noutput \"x\" {}\n")
		request := moduleRequest(packed)
		if err := checkSame(t, request, packed); err != nil {
			t.Errorf("the version exists: %v", err)
		}
		request.New = true
		err := checkSame(t, request, packed)
		if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "2 problems") {
			t.Errorf("got error %v, want ErrInvalid with two problems", err)
		}
	})
	t.Run("not a zip", func(t *testing.T) {
		t.Parallel()
		zip := []byte("no zip")
		platform := registry.Platform{OS: "linux", Arch: "amd64"}
		request := inspection.Request{
			Kind: inspection.ProviderZip, Size: int64(len(zip)), ProviderType: "x", Platform: platform,
		}
		err := checkSame(t, request, zip)
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("got error %v, want ErrInvalid", err)
		}
		if registry.Hint(err) == "" {
			t.Errorf("the error %v has no hint", err)
		}
	})
}

// checkSame compares an inspection in a child with one in this process, and
// returns the error of the first.
func checkSame(t *testing.T, request inspection.Request, packed []byte) error {
	t.Helper()
	want, wantErr := inspection.InThisProcess{}.Inspect(t.Context(), request, bytes.NewReader(packed))
	got, err := inspection.Process{}.Inspect(t.Context(), request, bytes.NewReader(packed))
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Error(diff)
	}
	if errors.Is(err, registry.ErrInvalid) != errors.Is(wantErr, registry.ErrInvalid) {
		t.Errorf("got error %v, want %v", err, wantErr)
	}
	if err != nil && !strings.HasPrefix(wantErr.Error(), err.Error()) {
		t.Errorf("got error %v, want %v", err, wantErr)
	}
	if hint, wantHint := registry.Hint(err), registry.Hint(wantErr); hint != wantHint {
		t.Errorf("got hint %q, want %q", hint, wantHint)
	}
	return err
}

// inspector is an [inspection.Process] or an [inspection.InThisProcess].
type inspector interface {
	Inspect(context.Context, inspection.Request, io.ReaderAt) (inspection.Found, error)
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// TestSourceFails checks that an error of reading is returned, and does not
// make the archive invalid.
func TestSourceFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, inspector := range []inspector{inspection.InThisProcess{}, inspection.Process{}} {
		request := inspection.Request{Kind: inspection.Module, Size: 100}
		if _, err := inspector.Inspect(t.Context(), request, failing{broken}); !errors.Is(err, broken) {
			t.Errorf("%T: got error %v, want the error of reading", inspector, err)
		}
	}
}

// ended is a source that ends a context when it is read.
type ended struct {
	ctx context.Context //nolint:containedctx // io.ReaderAt has none
	end func()
}

func (e ended) ReadAt([]byte, int64) (int, error) {
	e.end()
	return 0, e.ctx.Err()
}

// TestCanceled checks that an inspection returns the error of the context.
func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	request := inspection.Request{Kind: inspection.Module, Size: 100}
	if _, err := (inspection.Process{}).Inspect(ctx, request, ended{ctx, cancel}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}

// unchecked builds this test's program without the limits of package safehcl,
// and runs one of its tests. A Process then only has its own limits.
func unchecked(t *testing.T, test string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "unchecked")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program,
		"-ldflags", "-X github.com/larder-registry/larder/pkg/content/safehcl.unchecked=yes", ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program, "-test.run", "^"+test+"$", "-test.v",
		fmt.Sprintf("-update=%t", golden.Updating()))
	run.Env = append(os.Environ(), "LARDER_TEST_UNCHECKED=1")
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestIsolation inspects archives that crash, block or fill the process that
// parses them, without package safehcl's checks.
func TestIsolation(t *testing.T) {
	t.Parallel()
	unchecked(t, "TestUnchecked")
}

func TestUnchecked(t *testing.T) {
	if os.Getenv("LARDER_TEST_UNCHECKED") == "" {
		t.Skip("TestIsolation runs it")
	}
	texts := golden.New(t)
	r := strings.Repeat
	var log bytes.Buffer
	// An infinite stack reaches its own limit first.
	process := inspection.Process{
		Timeout: time.Minute, MaxMemory: 1 << 30, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	hasty, small := process, process
	hasty.Timeout, small.MaxMemory = time.Second, 64<<20
	for _, test := range []struct {
		name    string
		process inspection.Process
		text    string
	}{
		{"closers, then openers", process, "x = 1 " + r(")", 140_010) + "\ny = " + r("(", 140_000)},
		{"calls without a name", process, "x = a" + r("["+r("(", 150)+"a[a::1]"+r(")", 150)+"] [()]", 900) + "\n"},
		{"a long heredoc", hasty, "x = <<-A\n" + r(" ${a}\n", 100_000) + "A\n"},
		{"a long list", small, "x = [" + r("0,", 500_000) + "0]\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			packed := pack(t, test.text)
			_, err := test.process.Inspect(t.Context(), moduleRequest(packed), bytes.NewReader(packed))
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			texts.Error(t, err)
		})
	}
	if !strings.Contains(log.String(), "stack overflow") {
		t.Errorf("the log has no stack overflow: %s", log.String())
	}
	fine := pack(t, "x = 1\n")
	if _, err := process.Inspect(t.Context(), moduleRequest(fine), bytes.NewReader(fine)); err != nil {
		t.Errorf("a valid module after these: %v", err)
	}
}

// waiting is a source that reports its reads, and blocks them until allowed is
// closed.
type waiting struct {
	io.ReaderAt
	asked, allowed chan struct{}
}

func (w waiting) ReadAt(p []byte, offset int64) (int, error) {
	select {
	case w.asked <- struct{}{}:
	default:
	}
	<-w.allowed
	return w.ReaderAt.ReadAt(p, offset)
}

// slow is a source of which each read takes an hour.
type slow struct{ io.ReaderAt }

func (s slow) ReadAt(p []byte, offset int64) (int, error) {
	time.Sleep(time.Hour)
	return s.ReaderAt.ReadAt(p, offset)
}

// TestSlowSource checks that the time to read the source does not count, and that
// other time does.
func TestSlowSource(t *testing.T) {
	t.Parallel()
	const reads = 10
	for name, test := range map[string]struct {
		timeout time.Duration
		over    bool
	}{"just enough time": {reads*time.Second + 1, false}, "too little time": {reads*time.Second - 1, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := slow{strings.NewReader("source")}
				parent, child, err := inspection.Converse(source, test.timeout, func(r io.ReaderAt) {
					for range reads {
						time.Sleep(time.Second)
						if got, err := io.ReadAll(io.NewSectionReader(r, 0, 6)); string(got) != "source" {
							t.Errorf("read %q, %v", got, err)
						}
					}
				})
				if err != nil {
					t.Error(err)
				}
				if parent != test.over || child != test.over {
					t.Errorf("the time of the parent is over: %t, and of the child: %t; want %t", parent, child, test.over)
				}
			})
		})
	}
}

// TestEndedByOthers checks that an archive is not rejected if another process
// ends the child.
func TestEndedByOthers(t *testing.T) { // not parallel, because it would end the children of other tests
	if runtime.GOOS != "linux" {
		t.Skip("LEFT OUT: it needs /proc to find children")
	}
	packed := pack(t, "x = 1\n")
	for name, test := range map[string]struct {
		signal syscall.Signal
		want   error
	}{"SIGKILL": {syscall.SIGKILL, inspection.ErrDied}, "SIGTERM": {syscall.SIGTERM, nil}} {
		source := waiting{bytes.NewReader(packed), make(chan struct{}, 1), make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := (inspection.Process{}).Inspect(t.Context(), moduleRequest(packed), source)
			done <- err
		}()
		<-source.asked
		for _, child := range children(t) {
			if err := child.Signal(test.signal); err != nil {
				t.Error(err)
			}
		}
		close(source.allowed)
		if err := <-done; !errors.Is(err, test.want) {
			t.Errorf("%s: %v; want %v", name, err, test.want)
		}
	}
}

// children returns the children of this process.
func children(t *testing.T) (found []*os.Process) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Skip("LEFT OUT: the kernel does not list children")
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			child, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, child)
		}
	}
	return found
}
