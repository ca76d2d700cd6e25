package requestlog

import (
	"strings"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

const (
	// redacted replaces removed text in the log.
	redacted = "…"
	// maxPath bounds the logged part of a path, in bytes. No valid path is
	// longer.
	maxPath = 1024
	// maxSegment is the length of the longest name, and of a SHA-256 digest.
	maxSegment = 64
	// tokenPart is the number of characters from which a part of a registry
	// token is hidden. A token has 49 characters after its prefix, and the
	// other half cannot be guessed.
	tokenPart = 24
	// shownPart is the number of logged characters of a segment that is too
	// long.
	shownPart = 8
	// headerPart is shorter than the header of any JWT, without its "eyJ".
	headerPart = 12

	jwtPrefix = "eyJ" // {" in base64url
)

// safePath returns the part of a path that the log may contain. It ends at the
// first segment that no endpoint has. Such a segment has a character that is
// not plain, contains a credential, or is longer than any name. A segment of a
// routed path may begin with a digest. Elsewhere, a digest may be a signature.
func safePath(path string, routed bool) string {
	if len(path) > maxPath {
		path = path[:maxPath] + redacted
	}
	at := 0
	for segment := range strings.SplitSeq(path, "/") {
		if shown := safeSegment(segment, routed); shown != segment {
			return path[:at] + shown + redacted
		}
		at += len(segment) + len("/")
	}
	return path
}

// safeSegment returns the part of a path segment that the log may contain.
func safeSegment(segment string, routed bool) string {
	if cut, _ := findSecret(segment); cut >= 0 {
		segment = segment[:cut]
	}
	if i := strings.IndexFunc(segment, func(r rune) bool { return !errs.IsPlain(string(r)) }); i >= 0 {
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

// redact removes credentials from a text: registry tokens, JWTs, and the values
// of URL parameters that sign a request.
func redact(text string) string {
	if !mayHaveSecret(text) {
		return text
	}
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
			// A value may contain slashes.
			text = text[runLength(text, func(c byte) bool { return strings.IndexByte("& \t\r\n\"'`", c) < 0 }):]
		}
	}
	return safe.String()
}

// mayHaveSecret reports whether findSecret can find anything in a text. It takes
// much less time, and few texts have such characters.
func mayHaveSecret(text string) bool {
	return strings.ContainsAny(text, "_=%") || strings.Contains(text, jwtPrefix)
}

// findSecret returns the index of the first credential in a word, or -1, and
// reports whether it is the value of a parameter.
func findSecret(word string) (cut int, parameter bool) {
	if !mayHaveSecret(word) {
		return -1, false
	}
	cut = findToken(word)
	if jwt := findJWT(word); jwt >= 0 && (cut < 0 || jwt < cut) {
		cut = jwt
	}
	if value := findValue(word); value >= 0 && (cut < 0 || value < cut) {
		return value, true
	}
	return cut, false
}

// findToken returns the index of the random part of a registry token, or -1.
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

// findJWT returns the index in the header of a JWT after its "eyJ", or -1.
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

// findValue returns the index of the value of a parameter that signs a request,
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

// lowerASCII preserves the length of a text, unlike strings.ToLower.
func lowerASCII(text string) string {
	lower := []byte(text)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}

// runLength returns how many bytes at the beginning of a text belong to a
// class.
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

// isWord reports whether a credential, or the name of its parameter, may
// contain a byte.
func isWord(c byte) bool { return isBase64URL(c) || strings.IndexByte(".~+=%", c) >= 0 }
