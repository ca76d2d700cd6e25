package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

//go:embed static
var staticFiles embed.FS

// asset is a file that pages load. Its path contains a hash of its content, so
// browsers cache it for good.
type asset struct {
	path, contentType string
	content           []byte
	gzip              func() []byte
}

// assets are the assets by their names, such as style.css. All style sheets are
// one asset, so that a page loads one.
var assets = sync.OnceValue(func() map[string]*asset {
	all := map[string]*asset{}
	var style bytes.Buffer
	files, _ := fs.Glob(staticFiles, "static/*") // the pattern is valid
	for _, file := range files {
		content, err := staticFiles.ReadFile(file)
		if err != nil {
			panic(err) // it is embedded
		}
		if path.Ext(file) == ".css" {
			style.Write(content)
			continue
		}
		add(all, path.Base(file), content)
	}
	add(all, "style.css", []byte(squeeze(style.String())))
	return all
})

// comments are those of a style sheet. No string in ours has such a text.
var comments = regexp.MustCompile(`(?s)/\*.*?\*/`)

// squeeze returns a style sheet without comments, and without white space that
// means nothing.
func squeeze(style string) string {
	style = strings.Join(strings.Fields(comments.ReplaceAllString(style, "")), " ")
	return strings.NewReplacer(" > ", ">", "> ", ">", " { ", "{", "; } ", "}", "} ", "}", "; ", ";", ": ", ":", ", ", ",").
		Replace(style)
}

func add(all map[string]*asset, name string, content []byte) {
	sum := sha256.Sum256(content)
	extension := path.Ext(name)
	types := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	all[name] = &asset{
		path:        "/static/" + strings.TrimSuffix(name, extension) + "." + hex.EncodeToString(sum[:8]) + extension,
		contentType: types[extension], content: content, gzip: sync.OnceValue(func() []byte { return compress(content) }),
	}
}

func staticPath(name string) (string, error) {
	a := assets()[name]
	if a == nil {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return a.path, nil
}

// static serves an asset. Everyone may read it.
func (h *handler) static(w http.ResponseWriter, r *http.Request) error {
	for _, a := range assets() {
		if a.path != r.URL.Path {
			continue
		}
		header, content := w.Header(), a.content
		header.Set("Content-Type", a.contentType)
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
		header.Set("Vary", "Accept-Encoding")
		if httpapi.Accepts(r.Header.Values("Accept-Encoding"), "gzip") {
			header.Set("Content-Encoding", "gzip")
			content = a.gzip()
		}
		header.Set("Content-Length", strconv.Itoa(len(content)))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(content) // an error means that the client has disconnected
		return nil
	}
	return fmt.Errorf("asset %.80q: %w", r.PathValue("file"), registry.ErrNotFound)
}
