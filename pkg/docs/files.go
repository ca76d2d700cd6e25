package docs

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// SourceFile describes a file of a module version.
type SourceFile struct {
	// Path is relative to the root of the module.
	Path string `json:"path"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Kind is text, image or other. Files of the kind other are only listed.
	Kind string `json:"kind"`
	// Lines is the number of lines of a text.
	Lines int `json:"lines,omitempty"`
	// Type is the media type of an image, such as image/png.
	Type string `json:"type,omitempty"`
}

// MediaType returns the media type with which the content can be shown.
// Browsers run nothing of it, except for scripts of [TypeSVG].
func (f SourceFile) MediaType() string {
	switch f.Type {
	case "image/png", "image/jpeg", "image/gif", "image/webp", TypeSVG:
		return f.Type
	}
	return "text/plain; charset=utf-8"
}

// The kinds of files.
const (
	FileText  = "text"
	FileImage = "image"
	FileOther = "other"
)

// TypeSVG is the media type of an SVG image, which can have scripts.
const TypeSVG = "image/svg+xml"

// FileList describes the files of a module version.
type FileList struct {
	// Schema is the version of the format of the stored list, which is 1.
	Schema int `json:"schema,omitempty"`
	// RebuiltAt is the time at which the files replaced damaged ones. Otherwise
	// it is missing.
	RebuiltAt string `json:"rebuilt_at,omitempty"`
	// Files are sorted by path.
	Files []SourceFile `json:"files"`
	// Notes describe which files are missing or only listed, in full sentences.
	Notes []string `json:"notes,omitempty"`
}

// The limits of stored files.
const (
	// MaxFiles is the largest size of the stored object, in bytes.
	MaxFiles = 16 << 20
	// MaxFile is the largest size of one file, in bytes.
	MaxFile = 1 << 20
	// maxContents is the largest number of files with content.
	maxContents = 4_000
	maxList     = 6 << 20 // bytes
)

// The names in the stored zip.
const (
	listName   = "files.json"
	filePrefix = "files/"
)

// EncodeFiles returns the bytes of the stored object. contents has the content
// of each text and image by path. The same arguments always give the same
// bytes.
func EncodeFiles(list FileList, contents map[string][]byte) ([]byte, error) {
	list.Schema = Schema
	var out, text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(list)
	packed := zip.NewWriter(&out)
	add := func(name string, method uint16, data []byte) {
		var w io.Writer
		if err == nil {
			w, err = packed.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	add(listName, zip.Deflate, text.Bytes())
	for _, f := range list.Files {
		method := zip.Deflate
		switch {
		case f.Kind == FileOther:
			continue
		case f.Kind == FileImage && f.Type != TypeSVG:
			method = zip.Store // it is compressed
		}
		add(filePrefix+f.Path, method, contents[f.Path])
	}
	if err == nil {
		err = packed.Close()
	}
	if err == nil && (out.Len() > MaxFiles || text.Len() > maxList) {
		err = errors.New("they are too large")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot pack the files: %w", err)
	}
	return out.Bytes(), nil
}

// Files are the stored files of a module version.
type Files struct {
	FileList
	packed map[string]*zip.File
}

// ErrNoFile means that a version has no file with a path, or only lists it.
var ErrNoFile = errors.New("no such file")

// DecodeFiles reads a stored object. It reads at most [MaxFiles] bytes, and
// decompresses only the list.
func DecodeFiles(data []byte) (*Files, error) {
	f := &Files{packed: make(map[string]*zip.File)}
	if err := f.decode(data); err != nil {
		return nil, fmt.Errorf("cannot read the files: %w", err)
	}
	return f, nil
}

func (f *Files) decode(data []byte) error {
	if err := checkEnd(data); err != nil {
		return err
	}
	packed, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, file := range packed.File {
		f.packed[file.Name] = file
	}
	text, err := f.unpack(listName, maxList)
	if err == nil {
		err = json.Unmarshal(text, &f.FileList)
	}
	switch {
	case err != nil:
		return err
	case f.Schema > Schema:
		return fmt.Errorf("%w: it has schema version %d", ErrNewer, f.Schema)
	case f.Schema < Schema:
		return fmt.Errorf("it has schema version %d", f.Schema)
	}
	return nil
}

// RebuiltFiles returns the bytes of the stored object for the same files with a
// time at which they replaced damaged ones.
func RebuiltFiles(data []byte, at string) ([]byte, error) {
	f, err := DecodeFiles(data)
	if err != nil {
		return nil, err
	}
	contents := make(map[string][]byte)
	for _, one := range f.Files {
		if one.Kind == FileOther {
			continue
		}
		if _, contents[one.Path], err = f.Read(one.Path); err != nil {
			return nil, err
		}
	}
	f.RebuiltAt = at
	return EncodeFiles(f.FileList, contents)
}

// checkEnd checks the number of files in a zip without a comment, before its
// directory is read.
//
// Source: APPNOTE.TXT, section 4.3.16,
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT.
func checkEnd(data []byte) error {
	const size = 22
	if len(data) < size || len(data) > MaxFiles {
		return fmt.Errorf("it has %d bytes", len(data))
	}
	end := data[len(data)-size:]
	if string(end[:4]) != "PK\x05\x06" {
		return errors.New("it does not end as a zip")
	}
	if n := binary.LittleEndian.Uint16(end[10:]); n > maxContents {
		return fmt.Errorf("it has %d files", n)
	}
	return nil
}

// Read returns the description and the content of a file. The error is
// [ErrNoFile] unless it is a text or an image. Any other error means that the
// stored object is damaged.
func (f *Files) Read(path string) (SourceFile, []byte, error) {
	for _, one := range f.Files {
		if one.Path != path || one.Kind == FileOther {
			continue
		}
		data, err := f.unpack(filePrefix+path, MaxFile)
		if err == nil && int64(len(data)) != one.Size {
			err = fmt.Errorf("%.100q has %d bytes instead of %d", path, len(data), one.Size)
		}
		if err != nil {
			return SourceFile{}, nil, fmt.Errorf("cannot read the files: %w", err)
		}
		return one, data, nil
	}
	return SourceFile{}, nil, ErrNoFile
}

// unpack returns the content of an entry of at most limit bytes.
func (f *Files) unpack(name string, limit int64) ([]byte, error) {
	file := f.packed[name]
	if file == nil {
		return nil, fmt.Errorf("%.100q is missing", name)
	}
	in, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%.100q has more than %d bytes", strings.TrimPrefix(name, filePrefix), limit)
	}
	return data, err
}
