package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

const (
	// maxRefs bounds a response with refs, in bytes.
	maxRefs = 4 << 20
	// maxRef bounds the name of a ref, in bytes. Forges permit shorter ones.
	maxRef = 1 << 10
)

var (
	isHash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// isShort matches an abbreviated hash.
	isShort = regexp.MustCompile(`^[0-9a-f]{4,39}$`)
)

// Commit returns the commit of a ref, in lower-case hexadecimal. The ref is a
// commit, a tag or a branch. If it is empty, Commit returns the commit of the
// default branch. An annotated tag leads to its commit.
//
// A ref of 40 or 64 hexadecimal digits is a commit, in upper or lower case.
// Commit sends no request for it. Git ignores a branch or tag with such a name.
//
// It returns registry.ErrNotFound if there is no such ref, or if the forge does
// not show the repository to everyone. It returns registry.ErrInvalid if the
// response is not of Git's protocol, or too large.
//
// Source: https://git-scm.com/docs/protocol-v2 and
// https://git-scm.com/docs/http-protocol.
func (r Repository) Commit(ctx context.Context, c *client.Client, ref string) (string, error) {
	if commit := strings.ToLower(ref); isHash.MatchString(commit) {
		return commit, nil
	}
	if len(ref) > maxRef || !printable.Is(ref) {
		return "", registry.Errorf(registry.ErrInvalid, "cannot read %s: its ref is too long, or not printable", r)
	}
	names := candidates(ref)
	found, err := r.refs(ctx, c, names)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if commit := found[name]; commit != "" {
			return commit, nil
		}
	}
	if ref == "" {
		return "", registry.Errorf(registry.ErrNotFound, "cannot find the default branch of %s", r)
	}
	err = registry.Errorf(registry.ErrNotFound, "cannot find %s in %s: there is no such branch or tag",
		printable.Mark(ref, 200), r)
	if isShort.MatchString(ref) {
		err = registry.WithHint(err, "A commit needs all digits of its hash.")
	}
	return "", err
}

// candidates returns the names that a ref can have at the forge. The first that
// exists is the one that clients use.
//
// A tag takes precedence over a branch. OpenTofu 1.12 runs `git rev-parse` in
// the clone, and then tries refs/remotes/origin (resolveCheckoutRef of
// go-getter 1.8.6). Terraform 1.11 runs `git checkout` there (go-getter 1.7.5).
// They differ only for a tag with the name of the default branch: Terraform
// 1.11 uses the branch.
func candidates(ref string) []string {
	if ref == "" || ref == "HEAD" {
		return []string{"HEAD"}
	}
	names := []string{ref, "refs/" + ref}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "refs/tags/") && !strings.HasPrefix(name, "refs/heads/")
	})
	return append(names, "refs/tags/"+ref, "refs/heads/"+ref)
}

// refs returns the commits of those names that exist.
func (r Repository) refs(ctx context.Context, c *client.Client, names []string) (map[string]string, error) {
	header := http.Header{"Git-Protocol": {"version=2"}}
	answer, at, err := c.Request(ctx, r.String()+".git/info/refs?service=git-upload-pack", header, nil, maxRefs)
	if err != nil {
		return nil, r.explain(err)
	}
	p, format, err := advertisement(answer)
	if err == nil && format != "" {
		// Git too sends the second request to where the first one was
		// redirected.
		path, isRefs := strings.CutSuffix(at.Path, "/info/refs")
		if !isRefs {
			return nil, r.explain(errProtocol)
		}
		at.Path, at.RawPath, at.RawQuery = path+"/git-upload-pack", "", ""
		header.Set("Content-Type", "application/x-git-upload-pack-request")
		header.Set("Accept", "application/x-git-upload-pack-result")
		answer, _, err = c.Request(ctx, at.String(), header, listRefs(format, names), maxRefs)
		p = packets{answer}
	}
	if err != nil {
		return nil, r.explain(err)
	}
	found, err := p.refs(names)
	return found, r.explain(err)
}

// explain returns the error for a failed request to a repository.
func (r Repository) explain(err error) error {
	isHidden := func(kind error) bool { return errors.Is(err, kind) }
	kinds := []error{registry.ErrUnauthenticated, registry.ErrForbidden, registry.ErrNotFound}
	switch {
	case slices.ContainsFunc(kinds, isHidden):
		return registry.WithHint(registry.Errorf(registry.ErrNotFound,
			"cannot read the repository %s: it does not exist, or is private", r),
			"Without Git, only public repositories can be read. On a machine with Git, `larder mirror add` can copy others.")
	case errors.Is(err, errProtocol):
		return registry.Errorf(registry.ErrInvalid, "cannot read the refs of %s: %w", r, err)
	}
	return err
}

// listRefs returns the request of version 2 for the refs that begin with names.
func listRefs(format string, names []string) []byte {
	var request []byte
	add := func(line string) { request = fmt.Appendf(request, "%04x%s\n", len(line)+5, line) }
	add("command=ls-refs")
	add("object-format=" + format)
	request = append(request, "0001"...)
	add("peel")
	for _, name := range names {
		add("ref-prefix " + name)
	}
	return append(request, "0000"...)
}

var errProtocol = errors.New("the response is not of the protocol of Git")

// packets are the rest of a response of Git's protocol.
type packets struct{ rest []byte }

// next returns the line of the next packet. It returns io.EOF for the packet
// that ends a list. It returns errProtocol for a response that ends early.
func (p *packets) next() (string, error) {
	if len(p.rest) < 4 {
		return "", errProtocol
	}
	size, err := strconv.ParseUint(string(p.rest[:4]), 16, 16)
	if err == nil && size == 0 {
		p.rest = p.rest[4:]
		return "", io.EOF
	}
	if err != nil || size < 4 || size > uint64(len(p.rest)) {
		return "", errProtocol
	}
	line := string(p.rest[4:size])
	p.rest = p.rest[size:]
	return strings.TrimSuffix(line, "\n"), nil
}

// advertisement reads the beginning of the first response. In version 2 of the
// protocol it returns the format of hashes, such as sha1. In the versions
// before, the format is empty, and the refs follow.
func advertisement(answer []byte) (refs packets, format string, err error) {
	p := packets{answer}
	line, err := p.next()
	isService := line == "# service=git-upload-pack"
	if isService {
		if _, err := p.next(); !errors.Is(err, io.EOF) {
			return p, "", errProtocol
		}
		refs = p
		line, err = p.next()
	}
	if line != "version 2" {
		if !isService {
			err = errProtocol
		}
		return refs, "", err
	}
	for {
		line, err = p.next()
		if errors.Is(err, io.EOF) {
			return p, cmp.Or(format, "sha1"), nil
		} else if err != nil {
			return p, "", err
		}
		if line == "object-format=sha256" {
			format = "sha256"
		}
	}
}

// refs reads a list of refs, and returns the commits of those with certain
// names.
func (p *packets) refs(names []string) (map[string]string, error) {
	found := make(map[string]string)
	for {
		line, err := p.next()
		if errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		line, _, _ = strings.Cut(line, "\x00") // before version 2, capabilities follow
		fields := strings.Split(line, " ")
		if slices.Contains([]string{"version", "shallow", "unborn"}, fields[0]) {
			continue
		}
		if len(fields) < 2 || !isHash.MatchString(fields[0]) {
			return nil, errProtocol
		}
		hash := fields[0]
		for _, attribute := range fields[2:] {
			if peeled, is := strings.CutPrefix(attribute, "peeled:"); is && isHash.MatchString(peeled) {
				hash = peeled
			}
		}
		// Before version 2, a further line has the commit of an annotated tag.
		if name := strings.TrimSuffix(fields[1], "^{}"); slices.Contains(names, name) {
			found[name] = hash
		}
	}
}
