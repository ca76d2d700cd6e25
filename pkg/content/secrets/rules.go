package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/larder-registry/larder/pkg/registry"
)

// rule finds secrets of one form.
type rule struct {
	// literals are texts with which the secrets begin. They are rare in files
	// without secrets, so the pattern is rarely tried.
	literals [][]byte
	// pattern matches a secret from its beginning. It has one group, for the part
	// that kindOf decides about.
	pattern *regexp.Regexp
	// kindOf returns the kind of the secret that a match is, or "".
	kindOf func(t *text, m match) string
}

// text is the text around a match.
type text struct {
	all []byte
	// keys are the beginnings of texts that may be AWS secret keys. They are
	// searched for when they are needed.
	keys     []int
	keysDone bool
}

// match is a match of a pattern, from an offset to an end.
type match struct {
	from, to int
	part     string // the group of the pattern
}

// rules returns all rules. They are compiled when they are first used.
var rules = sync.OnceValue(func() []rule {
	newRule := func(kind, literals, pattern string, isSecret func(*text, match) bool) rule {
		r := rule{pattern: regexp.MustCompile(`^(?:` + pattern + `)`)}
		for literal := range strings.FieldsSeq(literals) {
			r.literals = append(r.literals, []byte(literal))
		}
		r.kindOf = func(t *text, m match) string {
			if !isSecret(t, m) {
				return ""
			}
			return kind
		}
		return r
	}
	privateKey := newRule("private key", "-----BEGIN", `-----BEGIN ([A-Z0-9 ]{0,30})PRIVATE KEY(?: BLOCK)?-----`, isPrivateKey)
	kindOf := privateKey.kindOf
	privateKey.kindOf = func(t *text, m match) string {
		kind := kindOf(t, m)
		if kind != "" && t.isServiceAccount(m.from) {
			kind = "Google service account key"
		}
		return kind
	}
	const end = `(?:\W|$)` // the end of a word
	return []rule{
		privateKey,
		newRule("Larder token", registry.TokenPrefix, `(`+registry.TokenPrefix+`[0-9A-Za-z]{49})`+end,
			func(_ *text, m match) bool { return registry.IsToken(m.part) }),
		newRule("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", `gh[pousr]_([0-9A-Za-z]{36})`+end, hasChecksum),
		newRule("GitHub token", "github_pat_", `github_pat_([0-9A-Za-z]{22}_[0-9A-Za-z]{59})`+end, isRandom),
		newRule("GitLab token", "glpat-", `glpat-([0-9A-Za-z_-]{20,})(?:\.[0-9a-z]{2}\.[0-9a-z]{7,9})?`+end,
			func(_ *text, m match) bool { return hasBothCases(m.part) && looksRandom(m.part) }),
		newRule("AWS access key", "AKIA ASIA", `A[KS]IA([A-Z2-7]{16})`+end, hasSecretKey),
		newRule("Slack token", "xox", `xox[abceoprs]-(?:[0-9]{1,13}-){1,4}([0-9A-Za-z]{20,})`+end, isRandom),
		newRule("Slack token", "xapp-", `xapp-[0-9]-[0-9A-Z]{8,13}-[0-9]{10,14}-([0-9a-f]{64})`+end, isRandom),
		newRule("Slack webhook", "hooks.slack.com/",
			`hooks\.slack\.com/(?:services|workflows|triggers)/[0-9A-Z]{8,13}/[0-9A-Z]{8,20}/([0-9A-Za-z]{20,64})`+end,
			isRandom),
		newRule("npm token", "npm_", `npm_([0-9A-Za-z]{36})`+end, hasChecksum),
		// The beginning is the version of the token and its domain, pypi.org or
		// test.pypi.org.
		newRule("PyPI token", "pypi-AgE", `pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZw)([0-9A-Za-z_-]{50,})`+end, isRandom),
		newRule("signed JWT", "eyJ", `(eyJ[0-9A-Za-z_-]{12,}\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,})`+end, isSignedJWT),
	}
})

// find returns the kind of the secret that begins at an offset, or "".
func (r rule) find(t *text, at int) string {
	if !t.begins(at) {
		return ""
	}
	found := r.pattern.FindSubmatchIndex(t.all[at:min(len(t.all), at+maxSecret)])
	if found == nil {
		return ""
	}
	m := match{from: at, to: at + found[1], part: string(t.all[at+found[2] : at+found[3]])}
	return r.kindOf(t, m)
}

// begins reports whether a secret can begin at an offset, and is not in a longer
// word. A hyphen joins words, but the one of ${NAME:-VALUE} does not. An escape
// such as \n, %3D or \u003d is not part of a word.
func (t *text) begins(at int) bool {
	var before [2]byte
	copy(before[2-min(at, 2):], t.all[max(0, at-2):at])
	switch first, last := before[0], before[1]; {
	case last == '-' && t.all[at] != '-':
		return !isWord(first) && first != '-'
	case isWord(last):
		return escapeAtEnd.Match(t.all[max(0, at-6):at])
	}
	return true
}

var escapeAtEnd = regexp.MustCompile(`(?:\\[nrt]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})$`)

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_'
}

// hasChecksum reports whether the last six characters are the checksum of the
// others, as in tokens of GitHub and npm.
//
// Source: https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/
func hasChecksum(_ *text, m match) bool {
	body := len(m.part) - 6
	return registry.TokenChecksum(m.part[:body]) == m.part[body:]
}

func isRandom(_ *text, m match) bool { return looksRandom(m.part) }

// placeholders are words in samples, in lower case. A random token almost never
// contains one.
var placeholders = []string{
	"example", "sample", "placeholder", "redacted", "dummy", "changeme", "token", "secret", "12345", "abcde",
	"your", "replace",
}

// looksRandom reports whether a text can be random. Words, repetitions and
// sequences of characters are not.
func looksRandom(s string) bool {
	lower := strings.ToLower(s)
	if slices.ContainsFunc(placeholders, func(word string) bool { return strings.Contains(lower, word) }) {
		return false
	}
	var seen [256]bool
	distinct, run, steps := 0, 0, 0
	for i := range len(s) {
		if !seen[s[i]] {
			seen[s[i]] = true
			distinct++
		}
		if i == 0 {
			continue
		}
		if run++; s[i] != s[i-1] {
			run = 0
		}
		if run == 5 {
			return false
		}
		if s[i] == s[i-1]+1 {
			steps++
		}
	}
	return distinct >= min(len(s)/2, 9) && steps < len(s)/3
}

// hasBothCases reports whether a text has capital and small letters, as random
// text does and most names do not.
func hasBothCases(s string) bool { return strings.ToLower(s) != s && strings.ToUpper(s) != s }

// near is how far from an AWS access key ID its secret key can be, in bytes.
// A session token can be between them.
const near = 2000

// hasSecretKey reports whether an AWS access key ID has a secret key near it.
// The ID by itself is public.
func hasSecretKey(t *text, m match) bool {
	if strings.Contains(m.part, "EXAMPLE") || !looksRandom(m.part) {
		return false
	}
	keys := t.secretKeys()
	i, _ := slices.BinarySearch(keys, m.from-near)
	return i < len(keys) && keys[i] < m.to+near
}

var isKeyID = regexp.MustCompile(`^A[KS]IA[A-Z2-7]{16}/`)

// secretKeys returns where texts begin that look like AWS secret keys. They have
// 40 characters of base64, one of them a digit, which a path may not have.
func (t *text) secretKeys() []int {
	if t.keysDone {
		return t.keys
	}
	t.keysDone = true
	isKey := func(c byte) bool { return isWord(c) && c != '_' || c == '/' || c == '+' }
	for at := 0; at < len(t.all); at++ {
		end := at
		for end < len(t.all) && isKey(t.all[end]) {
			end++
		}
		if at > 0 && t.all[at-1] == '\\' && end-at == 41 && strings.IndexByte("nrt", t.all[at]) >= 0 {
			at++ // an escape
		} else if end-at == 61 && isKeyID.Match(t.all[at:end]) {
			at += 21 // ID/SECRET
		}
		key := string(t.all[at:min(end, at+40)])
		// A SHA-1 in hexadecimal has only letters of one case.
		if end-at == 40 && strings.ContainsAny(key, "0123456789") && hasBothCases(key) && looksRandom(key) {
			t.keys = append(t.keys, at)
		}
		at = end
	}
	return t.keys
}

// signatureLengths are the lengths of signatures in base64 by their algorithm.
// Those of RS and PS depend on the key.
var signatureLengths = map[string]int{
	"HS256": 43, "HS384": 64, "HS512": 86, "ES256": 86, "ES384": 128, "ES512": 176, "ES256K": 86, "EdDSA": 86,
	"RS256": 0, "RS384": 0, "RS512": 0, "PS256": 0, "PS384": 0, "PS512": 0,
}

// sampleClaims are claims of well-known samples: those of jwt.io, RFC 7519,
// PyJWT and Supabase.
var sampleClaims = map[string]any{
	"sub": "1234567890", "http://example.com/is_root": true, "some": "payload", "iss": "supabase-demo",
}

// isSignedJWT reports whether a text is a signed JWT, and not a sample.
func isSignedJWT(_ *text, m match) bool {
	parts := strings.Split(m.part, ".")
	var header struct{ Alg string }
	if !decodeJSON(parts[0], &header) {
		return false
	}
	length, known := signatureLengths[header.Alg]
	signature := parts[2]
	if !known || length != 0 && len(signature) != length || length == 0 && len(signature) < 170 {
		return false
	}
	var claims map[string]any
	if !decodeJSON(parts[1], &claims) {
		return false
	}
	for name, value := range sampleClaims {
		if claims[name] == value {
			return false
		}
	}
	return true
}

func decodeJSON(part string, into any) bool {
	data, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(data, into) == nil
}

// isServiceAccount reports whether a private key is that of a Google service
// account, whose JSON has a type near the key. Quotes can be escaped.
func (t *text) isServiceAccount(at int) bool {
	const distance = 4 << 10
	return serviceAccount.Match(t.all[max(0, at-distance):min(len(t.all), at+2*distance)])
}

var serviceAccount = regexp.MustCompile(`\btype\\*"?\s*[:=]\s*\\*"service_account\\*"`)

// unescape replaces escapes of line breaks and of characters of base64 in JSON,
// HCL, scripts, XML and URLs. Some are escaped twice.
var unescape = strings.NewReplacer(`\\n`, "\n", `\\r`, "\n", `\n`, "\n", `\r`, "\n", `\t`, "\n", `\/`, "/",
	"&#10;", "\n", "&#13;", "\n", "&#xA;", "\n", "&#xD;", "\n", "&#xa;", "\n", "&#xd;", "\n",
	"%0A", "\n", "%0D", "\n", "%0a", "\n", "%0d", "\n", "%2B", "+", "%2F", "/", "%3D", "=",
	"%2b", "+", "%2f", "/", "%3d", "=", "%20", " ")

// labeled matches a line of base64 with a label, as in YAML and JSON, unlike a
// header of PEM.
var labeled = regexp.MustCompile(`^[^:]*:[ "']*[0-9A-Za-z+/]{40,}[=,"']*\s*$`)

// isPrivateKey reports whether a key in PEM has the content of a key, and not a
// placeholder.
func isPrivateKey(t *text, m match) bool {
	body, _, ended := bytes.Cut(t.all[m.to:min(len(t.all), m.from+maxSecret)], []byte("-----"))
	if !ended {
		return false
	}
	var encoded strings.Builder
	isEncrypted := false
	for _, line := range withoutPrefix(strings.Split(unescape.Replace(string(body)), "\n")) {
		label, rest, found := strings.Cut(line, ":")
		if found && encoded.Len() == 0 && !labeled.MatchString(line) { // a header
			isEncrypted = isEncrypted || strings.Contains(line, "ENCRYPTED")
			continue
		}
		if !found {
			rest = label
		}
		for word := range strings.FieldsSeq(rest) {
			word = strings.Trim(word, "\"'`,;#*>|\\-")
			isMark := strings.Trim(word, "/+") == ""      // of a comment, or an operator
			if !isMark && !strings.HasPrefix(word, "=") { // the sum of an OpenPGP key
				encoded.WriteString(word)
			}
		}
	}
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded.String(), "="))
	if err != nil || len(data) < 40 {
		return false
	}
	isRandomKey := looksRandom(encoded.String()[:54]) // 40 bytes
	switch {
	case isEncrypted:
		return len(data)%8 == 0 && isRandomKey // the block sizes of ciphers
	case strings.HasPrefix(m.part, "OPENSSH"):
		return len(data) >= 150 && bytes.HasPrefix(data, []byte("openssh-key-v1\x00"))
	case strings.HasPrefix(m.part, "PGP"):
		// The tag of a secret key or subkey, in the old or the new format.
		isKey := data[0]&^3 == 0x94 || data[0]&^3 == 0x9c || data[0] == 0xc5 || data[0] == 0xc7
		return isKey && isRandomKey
	}
	return isSequence(data)
}

// withoutPrefix removes the mark of an added line or of a comment from the lines
// after the first, if all of them have it.
func withoutPrefix(lines []string) []string {
	for _, mark := range []string{"+", "//"} {
		cut := slices.Clone(lines)
		isMarked := len(lines) > 1
		for i, line := range lines[1:] {
			line, found := strings.CutPrefix(strings.TrimSpace(line), mark)
			cut[i+1], isMarked = line, isMarked && found
		}
		if isMarked {
			return cut
		}
	}
	return lines
}

func isSequence(data []byte) bool {
	length, header := int(data[1]), 2
	if length >= 0x80 {
		header += length & 0x7f
		if header > 5 {
			return false
		}
		length = 0
		for _, b := range data[2:header] {
			length = length<<8 | int(b)
		}
	}
	return data[0] == 0x30 && length == len(data)-header
}
