package modulehosts

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// packet returns a line of git's protocol. No text is a flush.
func packet(text string) string {
	if text == "" {
		return "0000"
	}
	return fmt.Sprintf("%04x%s", 4+len(text), text)
}

// readPackets reads lines until a flush.
func readPackets(r io.Reader) (lines []string, err error) {
	in := bufio.NewReader(r)
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(in, head); err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(string(head), 16, 16)
		switch {
		case err != nil:
			return nil, err
		case n == 0:
			return lines, nil
		case n < 4: // 0001 is a delimiter
		default:
			text := make([]byte, n-4)
			if _, err := io.ReadFull(in, text); err != nil {
				return nil, err
			}
			lines = append(lines, strings.TrimSuffix(string(text), "\n"))
		}
	}
}

// ref is a reference. peeled is the commit of an annotated tag, or empty.
type ref struct{ name, object, peeled string }

// refs returns HEAD, then the others sorted by name.
func (r *repository) refs() []ref {
	all := []ref{{name: "HEAD", object: r.head.id}, {name: "refs/heads/main", object: r.head.id}}
	for _, name := range slices.Sorted(maps.Keys(r.tags)) {
		t := r.tags[name]
		one := ref{name: "refs/tags/" + name, object: t.object}
		if t.object != t.commit.id {
			one.peeled = t.commit.id
		}
		all = append(all, one)
	}
	return all
}

// advertise answers info/refs. In protocol version 0 it has all references.
func (r *repository) advertise(version2 bool) http.HandlerFunc {
	var out strings.Builder
	if !version2 || r.forge != Bitbucket { // clients accept both in version 2
		out.WriteString(packet("# service=git-upload-pack\n") + packet(""))
	}
	if version2 {
		for _, line := range []string{"version 2", "agent=git/2.45.0", "ls-refs=unborn", "object-format=sha1"} {
			out.WriteString(packet(line + "\n"))
		}
	} else {
		capabilities := "\x00multi_ack side-band-64k symref=HEAD:refs/heads/main object-format=sha1"
		for _, one := range r.refs() {
			out.WriteString(packet(one.object + " " + one.name + capabilities + "\n"))
			capabilities = ""
			if one.peeled != "" {
				out.WriteString(packet(one.peeled + " " + one.name + "^{}\n"))
			}
		}
	}
	return gitAnswer("advertisement", out.String()+packet(""))
}

// uploadPack answers git-upload-pack: the command ls-refs, and an error instead of
// packs.
func (r *repository) uploadPack() http.HandlerFunc {
	refs := r.refs() // while the caller has locked the server
	return func(w http.ResponseWriter, req *http.Request) {
		body := io.Reader(req.Body)
		var err error
		if req.Header.Get("Content-Encoding") == "gzip" { // as git does for long requests
			body, err = gzip.NewReader(body)
		}
		var lines []string
		if err == nil {
			lines, err = readPackets(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if req.Header.Get("Git-Protocol") != "version=2" || !slices.Contains(lines, "command=ls-refs") {
			gitAnswer("result", packet("ERR this server has no packs\n"))(w, req)
			return
		}
		gitAnswer("result", listRefs(refs, lines))(w, req)
	}
}

// listRefs returns the answer to ls-refs.
func listRefs(refs []ref, request []string) string {
	var prefixes []string
	for _, line := range request {
		if prefix, found := strings.CutPrefix(line, "ref-prefix "); found {
			prefixes = append(prefixes, prefix)
		}
	}
	var out bytes.Buffer
	for _, one := range refs {
		begins := func(prefix string) bool { return strings.HasPrefix(one.name, prefix) }
		if len(prefixes) > 0 && !slices.ContainsFunc(prefixes, begins) {
			continue
		}
		line := one.object + " " + one.name
		if one.name == "HEAD" && slices.Contains(request, "symrefs") {
			line += " symref-target:refs/heads/main"
		}
		if one.peeled != "" && slices.Contains(request, "peel") {
			line += " peeled:" + one.peeled
		}
		out.WriteString(packet(line + "\n"))
	}
	return out.String() + packet("")
}

// gitAnswer answers a kind of body of git-upload-pack.
func gitAnswer(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-"+kind)
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = io.WriteString(w, body)
	}
}
