package extract_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
)

// file is a file of an archive.
type file struct {
	name string
	data []byte
}

func text(name, content string) file { return file{name, []byte(content)} }

// packed returns an archive of files and of a configuration.
func packed(t testing.TB, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zipped)
	for _, f := range append(files, text("main.tf", "# a\n")) {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{w, zipped} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// storedFiles returns the stored files of an archive, and their bytes.
func storedFiles(t testing.TB, archived []byte) (*docs.Files, []byte) {
	t.Helper()
	m, err := archive.ReadModule(t.Context(), bytes.NewReader(archived))
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := extract.Files(m)
	if err != nil {
		t.Fatal(err)
	}
	files, err := docs.DecodeFiles(data)
	if err != nil {
		t.Fatal(err)
	}
	return files, data
}

func encoded(t testing.TB, encode func(*bytes.Buffer, image.Image) error) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := encode(&out, image.NewPaletted(image.Rect(0, 0, 3, 2), []color.Color{color.Black})); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// pngOf returns the beginning of a PNG image of a size, without its pixels.
func pngOf(width, height uint32) []byte {
	chunk := []byte("IHDR")
	chunk = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(chunk, width), height)
	chunk = append(chunk, 8, 2, 0, 0, 0)
	data := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), chunk...)
	return binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(chunk))
}

// webPOf returns the beginning of a WebP image with a frame.
func webPOf(frame string) []byte {
	data := append([]byte("RIFF\x00\x00\x00\x00WEBP"), frame[:4]...)
	return append(append(data, 0, 0, 0, 0), frame[4:]...)
}

// Each file has the kind and the type of its content, whatever its name is.
func TestFiles(t *testing.T) {
	t.Parallel()
	pngData := encoded(t, func(out *bytes.Buffer, i image.Image) error { return png.Encode(out, i) })
	jpegData := encoded(t, func(out *bytes.Buffer, i image.Image) error { return jpeg.Encode(out, i, nil) })
	gifData := encoded(t, func(out *bytes.Buffer, i image.Image) error { return gif.Encode(out, i, nil) })
	const svg, other, plain = docs.TypeSVG, "other", "text"
	const script = `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>`
	for name, test := range map[string]struct {
		file
		want string // the kind, or the type of an image
	}{
		"PNG":                        {file{"a.png", pngData}, "image/png"},
		"JPEG":                       {file{"a.jpg", jpegData}, "image/jpeg"},
		"GIF":                        {file{"a.gif", gifData}, "image/gif"},
		"lossy WebP":                 {file{"a.webp", webPOf("VP8 abc\x9d\x01\x2a\x03\x00\x02\x00")}, "image/webp"},
		"lossless WebP":              {file{"a.webp", webPOf("VP8L\x2f\x02\x40\x00\x00\x00\x00\x00\x00\x00")}, "image/webp"},
		"extended WebP":              {file{"a.webp", webPOf("VP8X\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00")}, "image/webp"},
		"huge WebP":                  {file{"a.webp", webPOf("VP8X\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff")}, other},
		"WebP cut short":             {file{"a.webp", []byte("RIFF\x00\x00\x00\x00WEBPVP8X")}, other},
		"WebP of an unknown frame":   {file{"a.webp", webPOf("VP9 \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")}, other},
		"PNG named .jpg":             {file{"a.jpg", pngData}, "image/png"},
		"PNG named .tf.txt":          {file{"a.tf.txt", pngData}, "image/png"},
		"HTML named .png":            {text("a.png", "<html><script>alert(1)</script></html>"), plain},
		"text named .png":            {text("a.png", "# a\n"), plain},
		"16 megapixels":              {file{"a.png", pngOf(4096, 4096)}, "image/png"},
		"more than 16 megapixels":    {file{"a.png", pngOf(4097, 4096)}, other},
		"100 megapixels":             {file{"a.png", pngOf(10_000, 10_000)}, other},
		"as many pixels as overflow": {file{"a.png", pngOf(1<<31-1, 1<<31-1)}, other},
		"no pixels":                  {file{"a.png", pngOf(0, 5)}, other},
		"PNG cut short":              {file{"a.png", pngData[:20]}, other},
		"only the name of a PNG":     {file{"a.png", pngData[:8]}, other},
		"JPEG cut short":             {file{"a.jpg", jpegData[:20]}, other},
		"GIF cut short":              {file{"a.gif", gifData[:7]}, other},
		"PNG of more than 1 MiB":     {file{"a.png", append(bytes.Clone(pngData), make([]byte, 1<<20)...)}, other},
		"SVG with a script":          {text("a.svg", script), svg},
		"SVG with a prolog":          {text("a.svg", "\uFEFF<?xml version=\"1.0\"?>\n<!-- a -->\n<!DOCTYPE svg PUBLIC \"a\" \"b\">\n<svg>\n</svg>"), svg},
		"SVG that declares entities": {text("a.svg", "<!DOCTYPE svg [<!ENTITY a \"b\">]>\n<svg>&a;</svg>"), plain},
		"HTML with SVG":              {text("a.svg", "<html>"+script+"</html>"), plain},
		"another element":            {text("a.svg", "<svgx></svgx>"), plain},
		"SVG that is not UTF-8":      {text("a.svg", script+"\xff"), other},
		"large SVG":                  {text("a.svg", script+strings.Repeat(" ", 300<<10)), svg},
		"large binary SVG":           {text("a.svg", script+strings.Repeat("\x00", 300<<10)), other},
		"text":                       {text("a", "a\nb"), plain},
		"no text":                    {text("a", ""), plain},
		"UTF-16":                     {text("a.txt", "\xff\xfea\x00"), other},
		"NUL":                        {text("a.txt", "a\x00"), other},
		"NUL at the end":             {text("a.txt", strings.Repeat("a", 200<<10)+"\x00"), other},
		"Latin-1":                    {text("a.txt", "caf\xe9"), other},
		"as large as a text may be":  {text("a.txt", strings.Repeat("a", archive.MaxText)), plain},
		"a larger text":              {text("a.txt", strings.Repeat("a", archive.MaxText+1)), other},
		"a huge file":                {file{"a.txt", bytes.Repeat([]byte("a"), 20<<20)}, other},
		"odd name":                   {text("docs/a & b 'c' (1) é%2e%2e%00;.md", "a\n"), plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, _ := storedFiles(t, packed(t, test.file, text("README.md", "![a]("+test.name+")")))
			at := slices.IndexFunc(files.Files, func(f docs.SourceFile) bool { return f.Path == test.name })
			if at < 0 {
				t.Fatal("the file is not listed")
			}
			f := files.Files[at]
			got := f.Kind
			if f.Kind == docs.FileImage {
				got = f.Type
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if f.Size != int64(len(test.data)) {
				t.Errorf("size %d, want %d", f.Size, len(test.data))
			}
			_, data, err := files.Read(test.name)
			if test.want == other {
				if err == nil {
					t.Error("the content of the file is stored")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(data, test.data) {
				t.Error("the content differs")
			}
		})
	}
}

// Only images to which a README refers are stored.
func TestShownImages(t *testing.T) {
	t.Parallel()
	data := pngOf(1, 1)
	files, _ := storedFiles(t, packed(t,
		file{"docs/early.png", data}, file{"docs/none.png", data}, file{"docs/my plan.png", data}, text("docs/none.svg", "<svg></svg>"),
		text("README.md", "![a](docs/early.png) ![b](<docs/my%20plan.png>)"),
		text("modules/a/readme", "<img src='../../late.png'>"), text("notes.md", "![a](docs/none.png)"), file{"late.png", data},
	))
	got := make(map[string]string)
	for _, f := range files.Files {
		got[f.Path] = f.Kind
	}
	want := map[string]string{
		"docs/early.png": "image", "docs/my plan.png": "image", "late.png": "image", "docs/none.png": "other",
		"docs/none.svg": "text", "README.md": "text", "modules/a/readme": "text", "notes.md": "text", "main.tf": "text",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// If there is too much, READMEs, configuration and changelogs come first, and
// notes describe what is missing.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	var many, large, images []file
	readme := "# a\n"
	for i := range 10_500 {
		many = append(many, text(fmt.Sprintf("texts/%05d.txt", i), "a\n"))
	}
	for i := range 40 {
		large = append(large, text(fmt.Sprintf("texts/%05d.txt", i), strings.Repeat("a", 250<<10)))
	}
	for i := range 6 {
		name := fmt.Sprintf("%d.png", i)
		images = append(images, file{name, append(pngOf(1, 1), make([]byte, 900<<10)...)})
		readme += name
	}
	important := []file{text("zz/README.md", readme), text("zz/a.tofu", "# a\n"), text("zz/CHANGELOG.md", "# a\n")}
	for name, test := range map[string]struct {
		files                 []file
		texts, images, listed int
		notes                 []string
	}{
		"many": {many, 2000, 0, 10_000, []string{
			"Files that are not listed, because there are too many: 504.",
			"Files that are only listed, because they are too many, or too large together: 8504.",
		}},
		"large": {large, 36, 0, 44, []string{
			"Files that are only listed, because they are too many, or too large together: 8.",
		}},
		"images": {images, 4, 4, 10, []string{
			"Images that are only listed, because they or all images together are too large: 2.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, _ := storedFiles(t, packed(t, append(test.files, important...)...))
			count := make(map[string]int)
			for _, f := range files.Files {
				count[f.Kind]++
			}
			want := map[string]int{"text": test.texts, "other": test.listed - test.texts - test.images}
			if test.images > 0 {
				want["image"] = test.images
			}
			if diff := cmp.Diff(want, count); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.notes, files.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			for _, f := range append(important, text("main.tf", "")) {
				if _, _, err := files.Read(f.name); err != nil {
					t.Errorf("%s: %v", f.name, err)
				}
			}
		})
	}
}

// The same archive always gives the same bytes.
func TestFilesAreDeterministic(t *testing.T) {
	t.Parallel()
	var files []file
	for i := range 300 {
		files = append(files, text(fmt.Sprintf("%d.md", i), strings.Repeat(fmt.Sprint(i), i)))
	}
	archived := packed(t, append(files, file{"a.png", pngOf(1, 1)}, text("README.md", "a.png"))...)
	_, first := storedFiles(t, archived)
	for range 3 {
		if _, again := storedFiles(t, archived); !bytes.Equal(first, again) {
			t.Fatal("the bytes differ")
		}
	}
}

// largest returns an archive with as much content as can be stored, and more.
func largest(t testing.TB) []byte {
	t.Helper()
	noise := rand.New(rand.NewPCG(1, 2)) // the same archive each time
	random := func(size int, from string) []byte {
		data := make([]byte, size)
		for i := range data {
			data[i] = from[noise.IntN(len(from))]
		}
		return data
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789+/ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	var files []file
	names := ""
	for i := range 48 {
		files = append(files, file{fmt.Sprintf("texts/%d.txt", i), random(archive.MaxText, letters)})
		name := fmt.Sprintf("%d.png", i)
		files = append(files, file{"images/" + name, append(pngOf(1, 1), random(archive.MaxImage-100, letters)...)})
		names += name + "\n"
	}
	return packed(t, append(files, text("README.md", names))...)
}

// The largest stored object is within its limit.
func TestLargestFiles(t *testing.T) {
	t.Parallel()
	files, data := storedFiles(t, largest(t))
	if len(data) > docs.MaxFiles || len(data) < docs.MaxFiles/2 {
		t.Errorf("it has %d bytes", len(data))
	}
	if len(files.Notes) == 0 {
		t.Error("there are no notes")
	}
}

func BenchmarkFiles(b *testing.B) {
	m, err := archive.ReadModule(b.Context(), bytes.NewReader(largest(b)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := extract.Files(m); err != nil {
			b.Fatal(err)
		}
	}
}
