package extract

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	_ "image/gif" // the formats of images
	_ "image/jpeg"
	_ "image/png"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/render"
)

// The limits of stored files.
const (
	maxImages   = 4 << 20  // bytes of all images
	maxPixels   = 16 << 20 // of one image
	maxCompared = 500      // images that are compared with the READMEs
	maxListed   = 10_000   // files
	maxPaths    = 1 << 20  // bytes of the paths of all listed files
)

// Files returns the files of a module that people may want to read, as
// [docs.EncodeFiles] does, and what READMEs can refer to. It stores texts, and
// those images to which a README refers. The other files are only listed. It
// decodes no image.
func Files(m archive.Module) ([]byte, map[string]render.File, error) {
	c := chosen{Contents: m.Contents, shown: make(map[string]render.File)}
	for name, data := range m.Contents.Files {
		if isReadme(path.Base(name)) && !archive.IsImage(data) && len(data) <= archive.MaxText {
			c.readmes = append(c.readmes, string(data))
		}
	}
	all := make([]docs.SourceFile, len(m.Files))
	for i, f := range m.Files {
		all[i] = c.describe(f)
	}
	slices.SortFunc(all, func(a, b docs.SourceFile) int { return strings.Compare(a.Path, b.Path) })
	var list docs.FileList
	list.Files = shorten(all)
	for _, note := range []struct {
		n    int
		text string
	}{
		{len(all) - len(list.Files), "Files that are not listed, because there are too many: %d."},
		{c.large, "Files that are only listed, because they are too large (256 KiB for a text, 1 MiB for an image): %d."},
		{c.images, "Images that are only listed, because they or all images together are too large: %d."},
		{c.Omitted, "Files that are only listed, because they are too many, or too large together: %d."},
	} {
		if note.n > 0 {
			list.Notes = append(list.Notes, fmt.Sprintf(note.text, note.n))
		}
	}
	for _, f := range list.Files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if _, found := c.shown[dir+"/"]; found {
				break
			}
			c.shown[dir+"/"] = render.File{}
		}
	}
	data, err := docs.EncodeFiles(list, m.Contents.Files)
	if err != nil {
		return nil, nil, err
	}
	return data, c.shown, nil
}

// chosen counts the files of a module while they are described.
type chosen struct {
	archive.Contents
	readmes   []string
	shown     map[string]render.File
	imageSize int
	compared  int // images
	// large and images are the numbers of files that exceed a limit.
	large, images int
}

func (c *chosen) describe(f archive.File) docs.SourceFile {
	described := docs.SourceFile{Path: f.Path, Size: f.Size, Kind: docs.FileOther}
	data, found := c.Files[f.Path]
	if !found {
		if f.Size > archive.MaxText {
			c.large++
		}
		return described
	}
	isText := len(data) <= archive.MaxText && !archive.IsImage(data)
	if (!isText || archive.IsSVG(data)) && c.isShown(f.Path) {
		if kind, size := imageType(data); kind != "" && c.imageSize+len(data) <= maxImages {
			c.imageSize += len(data)
			described.Kind, described.Type = docs.FileImage, kind
			c.shown[f.Path] = render.File{IsImage: true, Width: size.Width, Height: size.Height}
			return described
		}
		if !isText {
			c.images++
		}
	}
	if isText {
		described.Kind, described.Lines = docs.FileText, lines(data)
		c.shown[f.Path] = render.File{}
	}
	return described
}

// isShown reports whether a README may refer to an image. It is false after
// many calls, because each of them reads all READMEs.
func (c *chosen) isShown(name string) bool {
	c.compared++
	base := path.Base(name)
	return c.compared <= maxCompared && slices.ContainsFunc(c.readmes, func(text string) bool {
		return strings.Contains(text, base) || strings.Contains(text, url.PathEscape(base))
	})
}

func lines(text []byte) int {
	n := bytes.Count(text, []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}

// shorten returns the files to list. If there are too many, those with content
// come first.
func shorten(all []docs.SourceFile) []docs.SourceFile {
	size := 0
	listed := make([]bool, len(all))
	count := 0
	for _, content := range []bool{true, false} {
		for i, f := range all {
			fits := content || count < maxListed && size+len(f.Path) <= maxPaths
			if (f.Kind != docs.FileOther) == content && fits {
				listed[i] = true
				count, size = count+1, size+len(f.Path)
			}
		}
	}
	short := make([]docs.SourceFile, 0, count)
	for i, f := range all {
		if listed[i] {
			short = append(short, f)
		}
	}
	return short
}

// imageType returns the media type and the size of an image, from its first
// bytes. The type is empty if the image is invalid or has too many pixels. The
// size of an SVG is not known.
func imageType(data []byte) (kind string, size image.Config) {
	if archive.IsSVG(data) && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return docs.TypeSVG, size
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	if width, height, ok := webP(data); ok {
		config, format, err = image.Config{Width: width, Height: height}, "webp", nil
	}
	if err != nil || config.Width <= 0 || config.Height <= 0 || config.Width > maxPixels/config.Height {
		return "", size
	}
	return "image/" + format, config
}

// webP returns the size of a WebP image.
//
// Source: RFC 9649, sections 2.5 to 2.7, and RFC 6386, section 9.1.
func webP(data []byte) (width, height int, ok bool) {
	if len(data) < 30 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return 0, 0, false
	}
	number := binary.LittleEndian
	switch frame := data[20:]; string(data[12:16]) {
	case "VP8 ":
		if string(frame[3:6]) != "\x9d\x01\x2a" {
			return 0, 0, false
		}
		return int(number.Uint16(frame[6:]) & 0x3fff), int(number.Uint16(frame[8:]) & 0x3fff), true
	case "VP8L":
		bits := number.Uint32(frame[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, frame[0] == 0x2f
	case "VP8X":
		return int(number.Uint32(frame[4:])&0xffffff) + 1, int(number.Uint32(frame[6:])>>8) + 1, true
	}
	return 0, 0, false
}
