package archive

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/content/configuration"
)

// The limits of [Contents]: bytes of one text and one image, bytes of all texts
// and of all images, and number of texts.
const (
	MaxText   = 256 << 10
	MaxImage  = 1 << 20
	maxTexts  = 8 << 20
	maxImages = 16 << 20
	textCount = 2_000
)

// Contents are the files of a module that people may want to read. If there are
// too many, READMEs, configuration and changelogs come first, and before them those
// of the root.
type Contents struct {
	// Files has the content of texts and of images, by path. Texts are valid
	// UTF-8 without NUL. Images only begin like one, and can be anything.
	Files map[string][]byte
	// Omitted counts the texts and images of a valid size that exceed another
	// limit.
	Omitted int
}

// contents collects the contents of a module.
type contents struct {
	Contents
	// texts has the paths of texts by their rank, and textSize their bytes.
	texts     [textRanks][]string
	count     int
	textSize  int
	imageSize int
}

// read adds a file if it is a text or an image. content returns its bytes.
func (c *contents) read(f File, in *bufio.Reader, content func() ([]byte, error)) error {
	if f.Size > MaxImage {
		return nil
	}
	head, err := in.Peek(min(int(f.Size), in.Size()))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	image := IsImage(head) || f.Size > MaxText && IsSVG(head)
	if !image && (f.Size > MaxText || bytes.IndexByte(head, 0) >= 0) {
		return nil
	}
	data, err := content()
	switch {
	case err != nil:
		return err
	case image:
		c.addImage(f.Path, data)
	case utf8.Valid(data) && bytes.IndexByte(data, 0) < 0:
		c.addText(f.Path, data)
	}
	return nil
}

func (c *contents) addImage(name string, data []byte) {
	if c.imageSize+len(data) > maxImages {
		c.Omitted++
		return
	}
	c.imageSize += len(data)
	c.Files[name] = data
}

// addText adds a text. If there is no space, it first drops the last texts of
// worse ranks.
func (c *contents) addText(name string, data []byte) {
	rank := textRank(name)
	for worst := textRanks - 1; worst > rank && !c.fits(data); {
		last := len(c.texts[worst]) - 1
		if last < 0 {
			worst--
			continue
		}
		dropped := c.texts[worst][last]
		c.texts[worst] = c.texts[worst][:last]
		c.textSize -= len(c.Files[dropped])
		delete(c.Files, dropped)
		c.count--
		c.Omitted++
	}
	if !c.fits(data) {
		c.Omitted++
		return
	}
	c.texts[rank] = append(c.texts[rank], name)
	c.textSize += len(data)
	c.Files[name] = data
	c.count++
}

func (c *contents) fits(data []byte) bool {
	return c.count < textCount && c.textSize+len(data) <= maxTexts
}

// textRanks is the number of ranks of texts.
const textRanks = 5

// textRank returns the rank of a text. Lower ranks are better.
func textRank(name string) int {
	base := path.Base(name)
	rank := textRanks - 1
	switch {
	case readmeRank(base) > 0:
		rank = 1
	case configuration.IsName(base):
		rank = 2
	case strings.HasPrefix(strings.ToLower(base), "changelog"):
		rank = 3
	}
	if base == name && rank < textRanks-1 {
		return 0
	}
	return rank
}

// IsImage reports whether data begins like a PNG, JPEG, GIF or WebP image.
func IsImage(data []byte) bool {
	for _, magic := range []string{"\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "GIF87a", "GIF89a"} {
		if bytes.HasPrefix(data, []byte(magic)) {
			return true
		}
	}
	return len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP"
}

// IsSVG reports whether the first element of data is that of an SVG image. A
// document type that declares anything is not accepted.
func IsSVG(data []byte) bool {
	text := strings.TrimPrefix(string(data[:min(len(data), 4<<10)]), "\uFEFF")
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		end := ">"
		switch {
		case strings.HasPrefix(text, "<?"):
			end = "?>"
		case strings.HasPrefix(text, "<!--"):
			end = "-->"
		case strings.HasPrefix(text, "<!DOCTYPE svg"):
		default:
			rest, found := strings.CutPrefix(text, "<svg")
			return found && rest != "" && strings.ContainsRune(" \t\r\n>", rune(rest[0]))
		}
		skipped, rest, found := strings.Cut(text, end)
		if !found || strings.Contains(skipped, "[") && end == ">" {
			return false
		}
		text = rest
	}
}
