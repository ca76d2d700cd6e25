package inspection_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

// Contents of main.tf for which document behaves badly. The comment after hangs is
// the name of a file that it writes before.
const (
	dies    = "# the extraction of documentation dies\n"
	hangs   = "# the extraction of documentation hangs\n"
	grows   = "# the extraction of documentation takes all memory\n"
	too     = "# the documentation is too large\n"
	large   = "# the documentation is larger than a message\n"
	exact   = "# the documentation fills two messages\n"
	noted   = "# the documentation has many notes\n"
	nothing = "# the module cannot be documented\n"
	genuine = "# the module is documented as in other programs\n"

	environment = "# the notes are the environment\n"
)

// document replaces the extraction of documentation in this test's program, and
// so in its children.
func document(ctx context.Context, name string, m archive.Module) (extract.Document, error) {
	d := extract.Document{Data: []byte("documentation"), Contents: []byte("contents")}
	text := string(m.Sources["main.tf"])
	if name, found := strings.CutPrefix(text, hangs); found {
		_ = os.WriteFile(strings.TrimSpace(strings.Trim(name, "#")), nil, 0o600)
		<-ctx.Done() // of a child, which its timeout ends
		return extract.Document{}, ctx.Err()
	}
	switch text {
	case environment:
		d.Notes = os.Environ()
	case dies:
		fmt.Fprintln(os.Stderr, "documenting failed")
		os.Exit(2)
	case grows:
		for all := [][]byte{}; ; {
			all = append(all, bytes.Repeat([]byte("x"), 1<<20))
		}
	case too:
		d.Data = make([]byte, docs.MaxSize+1)
	case genuine:
		return extract.Encode(ctx, name, m)
	case large:
		d.Data = noise(5*inspection.MaxPart + 1)
	case exact:
		d.Data = noise(2 * inspection.MaxPart)
	case noted:
		for range 20 {
			d.Notes = append(d.Notes, strings.Repeat("<", 300)) // six bytes each in JSON
		}
	case nothing:
		return extract.Document{Notes: []string{extract.TooSlow}}, nil
	}
	return d, nil
}

// noise returns bytes that all differ from their neighbors.
func noise(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	return data
}

// TestDocument checks that the documentation of a child is that of this
// process, in several messages if it is large.
func TestDocument(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"small": "# a\n", "large": large, "exact": exact, "many notes": noted, "none": nothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packed := pack(t, text)
			if err := checkSame(t, moduleRequest(packed), packed); err != nil {
				t.Fatal(err)
			}
			found, err := inspection.Process{}.Inspect(t.Context(), moduleRequest(packed), bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			want, err := document(t.Context(), "", archive.Module{Sources: map[string][]byte{"main.tf": []byte(text)}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, found.Document, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestLargestFiles checks that a child has the memory for the most files that
// can be stored, together with as much configuration.
func TestLargestFiles(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{}) // the same files each time
	files := map[string]string{"main.tf": genuine}
	readme := ""
	for i := range 64 {
		text, picture := make([]byte, archive.MaxText), make([]byte, archive.MaxImage)
		_, _ = random.Read(text) // never fails
		_, _ = random.Read(picture)
		for j := range text {
			text[j] = '0' + text[j]%64
		}
		name := fmt.Sprintf("%02d", i)
		copy(picture, "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde")
		files[name+".png"], files[name+".txt"] = string(picture), string(text)
		files["modules/a/"+name+".tf"] = strings.Repeat("# "+strings.Repeat("a", 1000)+"\n", 250)
		readme += name + ".png\n"
	}
	files["README.md"] = readme
	packed := packAll(t, files)
	found, err := inspection.Process{}.Inspect(t.Context(), moduleRequest(packed), bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if found.Document.Notes != nil {
		t.Errorf("notes %q", found.Document.Notes)
	}
	stored, err := docs.DecodeFiles(found.Document.Files)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := stored.Read("00.png"); err != nil {
		t.Error(err)
	}
}

// TestEnvironment checks that a child has none of the parent's environment,
// which can contain credentials.
func TestEnvironment(t *testing.T) { // not parallel, because it sets a variable
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	packed := pack(t, environment)
	found, err := inspection.Process{}.Inspect(t.Context(), moduleRequest(packed), bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"LARDER_INSPECTION_CHILD=1", "GOTRACEBACK=none"}
	if diff := cmp.Diff(want, found.Document.Notes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestNoDocument checks that a module is valid if its child ends while it
// documents it. The module then has only a note.
func TestNoDocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text    string
		process inspection.Process
	}{
		"crash":           {dies, inspection.Process{}},
		"too much time":   {hangs, inspection.Process{Timeout: time.Second}},
		"too much memory": {grows, inspection.Process{MaxMemory: 96 << 20}},
		"too large":       {too, inspection.Process{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			test.process.Log = slog.New(slog.NewTextHandler(&log, nil))
			packed := pack(t, test.text)
			found, err := test.process.Inspect(t.Context(), moduleRequest(packed), bytes.NewReader(packed))
			for test.text == hangs && errors.Is(err, registry.ErrInvalid) {
				test.process.Timeout *= 2 // it was too short to read the module
				found, err = test.process.Inspect(t.Context(), moduleRequest(packed), bytes.NewReader(packed))
			}
			if err != nil {
				t.Fatal(err)
			}
			if found.SHA256 == "" || found.ContentSHA256 == "" {
				t.Errorf("the result has no digests: %+v", found)
			}
			want := extract.Document{Notes: []string{extract.Failed}}
			if diff := cmp.Diff(want, found.Document, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if log.Len() == 0 {
				t.Error("nothing is logged")
			}
			if test.text == dies && !strings.Contains(log.String(), "documenting failed") {
				t.Errorf("the log lacks the output of the child: %s", log.String())
			}
		})
	}
}

// TestCanceledDocument checks that the end of the context is an error, and not a
// module without documentation.
func TestCanceledDocument(t *testing.T) {
	t.Parallel()
	for _, inspector := range []inspector{inspection.InThisProcess{}, inspection.Process{}} {
		begun := filepath.Join(t.TempDir(), "begun")
		packed := pack(t, hangs+"# "+begun+"\n")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(begun); err == nil {
					cancel()
				}
				time.Sleep(time.Millisecond)
			}
		}()
		found, err := inspector.Inspect(ctx, moduleRequest(packed), bytes.NewReader(packed))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%T: got error %v, want context.Canceled", inspector, err)
		}
		if len(found.Document.Data)+len(found.Document.Notes) > 0 {
			t.Errorf("%T: got documentation %+v", inspector, found.Document)
		}
	}
}

// TestInvalidRequests checks that the parent rejects requests that a child
// cannot need.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	for _, request := range []string{
		fmt.Sprintf(`{"read":{"offset":0,"length":%d}}`, inspection.MaxRead+1), `{"read":{"offset":0,"length":-1}}`,
		`{"read":{"offset":-1,"length":1}}`, `{}`,
	} {
		if err := inspection.Answer(request + "\n"); err == nil || !strings.Contains(err.Error(), "invalid request") {
			t.Errorf("%s: got error %v", request, err)
		}
	}
}

// TestReceive checks that only a complete documentation of a valid size is
// received.
func TestReceive(t *testing.T) {
	t.Parallel()
	part := func(data []byte) string {
		return `{"document":{"data":"` + base64.StdEncoding.EncodeToString(data) + `"}}` + "\n"
	}
	const contents = `{"document":{"contents":"YWI="}}` + "\n"
	const end = contents + contents + `{"document":{"notes":["A note."]}}` + "\n"
	full := part(noise(inspection.MaxPart))
	most := docs.MaxSize / inspection.MaxPart
	filesPart := func(data []byte) string { return strings.Replace(part(data), "data", "files", 1) }
	fullFiles := filesPart(noise(inspection.MaxPart))
	failed := extract.Document{Notes: []string{extract.Failed}}
	complete := func(data []byte) extract.Document {
		return extract.Document{Data: data, Contents: []byte("abab"), Notes: []string{"A note."}}
	}
	withFiles := func(files string) extract.Document {
		d := complete([]byte("x"))
		d.Files = []byte(files)
		return d
	}
	for name, test := range map[string]struct {
		sent string
		want extract.Document
	}{
		"one part":           {part([]byte("x")) + end, complete([]byte("x"))},
		"two parts":          {part([]byte("x")) + part([]byte("y")) + end, complete([]byte("xy"))},
		"no part":            {end, complete(nil)},
		"files":              {part([]byte("x")) + filesPart([]byte("y")) + filesPart([]byte("z")) + end, withFiles("yz")},
		"too many files":     {strings.Repeat(fullFiles, docs.MaxFiles/inspection.MaxPart+1) + end, failed},
		"the largest":        {strings.Repeat(full, most) + end, complete(bytes.Repeat(noise(inspection.MaxPart), most))},
		"larger":             {strings.Repeat(full, most) + part([]byte("x")) + end, failed},
		"without an end":     {strings.Repeat(full, 2*most), failed},
		"nothing":            {"", failed},
		"the end is missing": {part([]byte("x")), failed},
		"half a line":        {part([]byte("x")) + end[:len(end)-2], failed},
		"no JSON":            {part([]byte("x")) + "hello\n" + end, failed},
		"no base64":          {`{"document":{"data":"?"}}` + "\n" + end, failed},
		"a request":          {part([]byte("x")) + `{"read":{"offset":0,"length":1}}` + "\n" + end, failed},
		"a result":           {`{"result":{}}` + "\n" + end, failed},
		"a long line":        {part(noise(4*inspection.MaxPart)) + end, failed},
		"more after the end": {part([]byte("x")) + end + end, complete([]byte("x"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := inspection.ReceiveDocument(strings.NewReader(test.sent))
			if diff := cmp.Diff(test.want, got, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("(-want +got)\n%.2000s", diff)
			}
		})
	}
}
