package requestlog

import (
	"strings"

	"github.com/larder-registry/larder/pkg/registry/core"
)

const (
	// redacted stands in the log for what was cut.
	redacted = "…"
	// maxPath is how many bytes of a path are shown. No path that names something
	// is longer.
	maxPath = 1024
	// maxSegment is the length of the longest name, and of a SHA-256 digest.
	maxSegment = 64
	// tokenPart is how many characters of a registry token make it worth hiding.
	// A token has 49 behind its prefix, and the other half cannot be guessed.
	tokenPart = 24
	// shownPart is how many characters are shown of a segment that is too long.
	shownPart = 8
	// headerPart is shorter than the header of any JWT, without its "eyJ".
	headerPart = 12

	jwtPrefix = "eyJ" // {" in base64url
)

// safePath returns a path as the log may show it. It ends at the first segment
// that no endpoint has: one with a character that is not plain, one that holds a
// credential, and one that is longer than any name. A digest may begin a segment
// of a path that has come to a route; elsewhere it may be a signature.
func safePath(path string, routed bool) string {
	var safe strings.Builder
	if len(path) > maxPath {
		path = path[:maxPath] + redacted
	}
	for rest, more := path, true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		shown := safeSegment(segment, routed)
		safe.WriteString(shown)
		if shown != segment {
			safe.WriteString(redacted)
			break
		}
		if more {
			safe.WriteByte('/')
		}
	}
	return safe.String()
}

// safeSegment returns the part of a path's segment that the log may show.
func safeSegment(segment string, routed bool) string {
	if cut, _ := findSecret(segment); cut >= 0 {
		segment = segment[:cut]
	}
	if i := strings.IndexFunc(segment, func(r rune) bool { return !core.IsPlain(string(r)) }); i >= 0 {
		segment = segment[:i]
	}
	if strings.HasPrefix(segment, jwtPrefix) {
		return jwtPrefix
	}
	name := segment
	if digest := runLength(segment, isHex) >= maxSegment; digest && !routed {
		return segment[:shownPart]
	} else if digest {
		name = segment[maxSegment:]
	}
	if len(name) > maxSegment {
		return segment[:shownPart]
	}
	return segment
}

// redact returns a text without the credentials in it: tokens of the registry,
// JWTs, and the values of URL parameters that sign a request.
func redact(text string) string {
	var safe strings.Builder
	for text != "" {
		n := runLength(text, isWord)
		if n == 0 {
			safe.WriteByte(text[0])
			text = text[1:]
			continue
		}
		word := text[:n]
		text = text[n:]
		cut, parameter := findSecret(word)
		if cut < 0 {
			safe.WriteString(word)
			continue
		}
		safe.WriteString(word[:cut])
		safe.WriteString(redacted)
		if parameter {
			// A value may have slashes in it.
			text = text[runLength(text, func(c byte) bool { return strings.IndexByte("& \t\r\n\"'`", c) < 0 }):]
		}
	}
	return safe.String()
}

// findSecret returns where the first credential in a word begins that must be
// hidden, or -1, and reports whether it is the value of a parameter.
func findSecret(word string) (cut int, parameter bool) {
	cut = findToken(word)
	if jwt := findJWT(word); jwt >= 0 && (cut < 0 || jwt < cut) {
		cut = jwt
	}
	if value := findValue(word); value >= 0 && (cut < 0 || value < cut) {
		return value, true
	}
	return cut, false
}

// findToken returns where the random part of a registry token begins, or -1.
func findToken(word string) int {
	word = lowerASCII(word)
	for at := 0; ; {
		i := strings.Index(word[at:], "larder")
		if i < 0 {
			return -1
		}
		at += i + len("larder")
		for _, separator := range []string{"_", "%5f"} {
			random, found := strings.CutPrefix(word[at:], separator)
			if found && runLength(random, isAlphanumeric) >= tokenPart {
				return at + len(separator)
			}
		}
	}
}

// findJWT returns where the header of a JWT goes on behind its "eyJ", or -1.
func findJWT(word string) int {
	for at := 0; at < len(word); {
		run := runLength(word[at:], isBase64URL)
		i := strings.Index(word[at:at+run], jwtPrefix)
		header := at + i + len(jwtPrefix)
		end := at + run
		if i >= 0 && end-header >= headerPart && end < len(word) && word[end] == '.' {
			return header
		}
		at = end + 1
	}
	return -1
}

// findValue returns where the value of a parameter begins that signs a request,
// such as signature or X-Amz-Security-Token, or -1.
func findValue(word string) int {
	word = lowerASCII(word)
	for at := 0; ; {
		i := strings.IndexAny(word[at:], "=%")
		if i < 0 {
			return -1
		}
		name := word[at : at+i]
		at += i + 1
		if word[at-1] == '%' {
			escaped, found := strings.CutPrefix(word[at:], "3d")
			if !found {
				continue
			}
			at = len(word) - len(escaped)
		}
		if strings.HasSuffix(name, "signature") || strings.HasSuffix(name, "token") || strings.Contains(name, "x-amz-") {
			return at
		}
	}
}

// lowerASCII keeps the length of a text, as strings.ToLower does not.
func lowerASCII(text string) string {
	lower := []byte(text)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}

// runLength returns how many bytes at the beginning of a text are of a class.
func runLength(text string, of func(byte) bool) int {
	for i := range len(text) {
		if !of(text[i]) {
			return i
		}
	}
	return len(text)
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

func isBase64URL(c byte) bool { return isAlphanumeric(c) || c == '-' || c == '_' }

// isWord reports whether a credential, or the name of its parameter, can have a
// byte in it.
func isWord(c byte) bool { return isBase64URL(c) || strings.IndexByte(".~+=%", c) >= 0 }
