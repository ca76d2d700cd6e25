package archive

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/larder-registry/larder/pkg/registry"
)

// This file holds the rules for names in archives. They are the same for
// packing a module, reading one, and reading the zip of a provider. What was
// reviewed on one system is then what every other system unpacks.

const (
	maxPath  = 1024     // bytes
	maxName  = 255      // bytes of one part of a path, which is what file systems take
	maxPaths = 16 << 20 // bytes of all paths in a module's archive
)

// What to do about a name, or about one of two. It follows a rule's error.
const (
	renameInModule    = "rename it, or leave it out in .terraformignore"
	renameOneInModule = "rename one of them, or leave one out in .terraformignore"
	renameInZip       = "rename it, and zip the files anew from within their folder"
	renameOneInZip    = "rename one of them, and zip the files anew"
)

// checkPath reports why a path cannot unpack to the same place on every
// system.
func checkPath(p string) error {
	if len(p) > maxPath {
		return fmt.Errorf("it has more than %d bytes", maxPath)
	}
	switch r := invisible(p); {
	case r == utf8.RuneError:
		return errors.New("it is not in UTF-8")
	case r >= 0:
		return fmt.Errorf("it has the character %U, which does not show, or reorders text", r)
	case !fs.ValidPath(p) || p == ".":
		return errors.New("it does not lead to a file below the archive's root")
	}
	for name := range strings.SplitSeq(p, "/") {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

// checkName checks one part of a path.
func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("it has a name of more than %d bytes", maxName)
	}
	if at := strings.IndexAny(name, `\<>:"|?*`); at >= 0 {
		return fmt.Errorf("it has %q, which names on Windows cannot have", name[at])
	}
	trimmed := strings.TrimRight(name, ". ")
	// git~1 is the short name that Windows makes for .git.
	if strings.EqualFold(trimmed, ".git") || strings.EqualFold(trimmed, "git~1") {
		return fmt.Errorf("it has the part %q, from which git reads settings and hooks", name)
	}
	if trimmed != name {
		return fmt.Errorf("it has the part %q, which ends in a dot or a space, and Windows removes that", name)
	}
	if isDevice(name) {
		return fmt.Errorf("it has the part %q, which is a device on Windows", name)
	}
	return nil
}

// quotePath returns the beginning of a path, in quotes. Characters that do not
// show are escaped, and so are all beyond ASCII beside them.
func quotePath(p string) string {
	if invisible(p) >= 0 {
		return fmt.Sprintf("%+.255q", p)
	}
	return fmt.Sprintf("%.255q", p)
}

// isDevice reports whether Windows reserves a name for a device. An extension
// does not change that.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
func isDevice(name string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(name), ".")
	switch base = strings.TrimRight(base, " "); base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	port, found := strings.CutPrefix(base, "COM")
	if !found {
		port, found = strings.CutPrefix(base, "LPT")
	}
	return found && utf8.RuneCountInString(port) == 1 && strings.Contains("123456789¹²³", port)
}

// invisible returns the first character that a person does not see, or that
// changes the order of others; utf8.RuneError for bytes that are not UTF-8; or
// -1 if there is none.
func invisible(s string) rune {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsGraphic(r) ||
			unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return r
		}
	}
	return -1
}

// checkPaths reports two paths that cannot stand beside one another on every
// system. Some systems ignore case or Unicode normalisation. The path of a
// folder ends in a slash. Folders count too, whether they have entries of their
// own or not.
func checkPaths(paths []string) error {
	type folded struct{ path, folded string }
	all := make([]folded, len(paths))
	for i, p := range paths {
		all[i] = folded{p, foldPath(p)}
	}
	// In this order, everything in a folder directly follows the folder.
	slices.SortFunc(all, func(a, b folded) int {
		return cmp.Or(cmp.Compare(a.folded, b.folded), cmp.Compare(a.path, b.path))
	})
	for i := range max(0, len(all)-1) {
		if err := checkPair(all[i].path, all[i+1].path); err != nil {
			return err
		}
	}
	return nil
}

// checkPair compares two paths that are neighbours in the order of checkPaths.
func checkPair(first, second string) error {
	a, b := first, second
	for {
		partA, restA, moreA := strings.Cut(a, "/")
		partB, restB, moreB := strings.Cut(b, "/")
		switch {
		case partA != partB && foldPath(partA) != foldPath(partB):
			return nil
		case partA != partB && norm.NFC.String(partA) == norm.NFC.String(partB):
			return fmt.Errorf("%+q and %+q are one name on macOS, since they differ only in how letters are composed",
				first, second)
		case partA != partB:
			return fmt.Errorf("%s and %s are one name on Windows and macOS, since they differ only in case", first, second)
		case moreA != moreB:
			return fmt.Errorf("%s is both a file and a folder", strings.TrimSuffix(first, "/"))
		case !moreA && partA == "": // entries for the same folder
			return nil
		case !moreA:
			return fmt.Errorf("%s is in it twice", first)
		}
		a, b = restA, restB
	}
}

// foldPath returns what a path has in common with every path that may be the
// same file. Its separator sorts before every character of a name.
//
// Source: Unicode Standard, section 3.13, "canonical caseless match".
func foldPath(p string) string {
	p = norm.NFD.String(strings.ToLower(strings.ToUpper(norm.NFD.String(p))))
	return strings.ReplaceAll(p, "/", "\x00")
}

// checkHeader checks the name and the mode of one entry of a module's tar, and
// returns its path as [checkPaths] takes it. Clients keep the mode when they
// unpack, set-user-ID bits included.
func checkHeader(header *tar.Header) (string, error) {
	p := header.Name
	if header.Typeflag == tar.TypeDir {
		p = strings.TrimSuffix(p, "/")
	}
	if err := checkPath(p); err != nil {
		return "", fmt.Errorf("%w path %s in an archive: %w: %s", registry.ErrInvalid, quotePath(p), err, renameInModule)
	}
	if header.Typeflag == tar.TypeDir {
		p += "/"
	}
	if header.Mode&0o7000 != 0 {
		return "", fmt.Errorf("%w module archive: %s has a special mode: run chmod u-s,g-s,-t on it, and pack it again",
			registry.ErrInvalid, p)
	}
	return p, nil
}

// checkModulePaths is checkPaths for the entries of a module's tar.
func checkModulePaths(paths []string) error {
	if err := checkPaths(paths); err != nil {
		return fmt.Errorf("%w module archive: %w: %s", registry.ErrInvalid, err, renameOneInModule)
	}
	return nil
}
