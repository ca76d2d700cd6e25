package secrets_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/corpus"
	"github.com/larder-registry/larder/pkg/content/secrets"
	"github.com/larder-registry/larder/pkg/registry"
)

// scan returns the findings in a file that is written in parts.
func scan(path string, content []byte, allowed ...string) []secrets.Finding {
	s := secrets.Scanner{Allowed: allowed}
	s.Begin(path)
	for part := range slices.Chunk(content, 1000) {
		_, _ = s.Write(part) // it never fails
	}
	s.End()
	return s.Found()
}

// maker makes secrets from a seed. No secret is in this file, so that scanners
// of repositories do not report it.
type maker struct{ *rand.Rand }

func newMaker(seed uint64) maker { return maker{rand.New(rand.NewPCG(seed, 1))} }

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

func (m maker) text(alphabet string, length int) string {
	text := make([]byte, length)
	for i := range text {
		text[i] = alphabet[m.IntN(len(alphabet))]
	}
	return string(text)
}

func (m maker) bytes(length int) []byte {
	data := make([]byte, length)
	for i := range data {
		data[i] = byte(m.Uint32())
	}
	return data
}

// sequence returns a sequence in DER, like a private key.
func (m maker) sequence(length int) []byte {
	if length < 0x80 {
		return append([]byte{0x30, byte(length)}, m.bytes(length)...)
	}
	return append(binary.BigEndian.AppendUint16([]byte{0x30, 0x82}, uint16(length)), m.bytes(length)...)
}

func (m maker) pem(kind string, data []byte) string {
	return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})))
}

func (m maker) checked(prefix string) string {
	body := m.text(digits+upper+lower, 30)
	return prefix + body + registry.TokenChecksum(body)
}

func (m maker) jwt(header string, signature int) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"iss":"https://issuer.example.com","sub":"%s"}`, m.text(digits, 12))
	return encode([]byte(header)) + "." + encode([]byte(claims)) + "." + encode(m.bytes(signature))
}

// made is a secret in a text of its own.
type made struct {
	name, kind string
	text       string
	begin      string // how the secret begins in the text
}

// all returns secrets of each kind.
func (m maker) all() []made {
	base62, base64url := digits+upper+lower, digits+upper+lower+"-_"
	const private = "PRIVATE " + "KEY"
	token := registry.FormatToken([32]byte(m.bytes(32)))
	list := []made{
		{name: "PKCS 8", kind: "private key", text: m.pem(private, m.sequence(1200))},
		{name: "short key", kind: "private key", text: m.pem(private, m.sequence(46))},
		{name: "RSA", kind: "private key", text: m.pem("RSA "+private, m.sequence(2300))},
		{name: "EC", kind: "private key", text: m.pem("EC "+private, m.sequence(119))},
		{name: "encrypted PKCS 8", kind: "private key", text: m.pem("ENCRYPTED "+private, m.sequence(1300))},
		{name: "encrypted RSA", kind: "private key", text: strings.Replace(m.pem("RSA "+private, m.bytes(1200)),
			"\n", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,"+m.text("0123456789ABCDEF", 32)+"\n\n", 1)},
		{name: "OpenSSH", kind: "private key", text: m.pem("OPENSSH "+private, append([]byte("openssh-key-v1\x00"),
			m.bytes(300)...))},
		{name: "OpenPGP", kind: "private key", text: strings.Replace(m.pem("PGP "+private+" BLOCK",
			append([]byte{0x95}, m.bytes(600)...)),
			"\n-----END", "\n=x7Qp\n-----END", 1)},
		{name: "Google", kind: "Google service account key", begin: "-----BEGIN", text: fmt.Sprintf(
			"{\n  \"type\": \"service_account\",\n  \"private_key_id\": %q,\n  \"private_key\": %q\n}",
			m.text("0123456789abcdef", 40), m.pem(private, m.sequence(1200))+"\n")},
		{name: "Larder", kind: "Larder token", text: token},
		{name: "GitHub, classic", kind: "GitHub token", text: m.checked("ghp_")},
		{name: "GitHub, OAuth", kind: "GitHub token", text: m.checked("gho_")},
		{name: "GitHub, installation", kind: "GitHub token", text: m.checked("ghs_")},
		{name: "GitHub, fine-grained", kind: "GitHub token", text: "github_pat_" + m.text(base62, 22) + "_" +
			m.text(base62, 59)},
		{name: "GitLab", kind: "GitLab token", text: "glpat-" + m.text(base64url, 20)},
		{name: "GitLab, routable", kind: "GitLab token", text: "glpat-" + m.text(base64url, 28) + ".01." +
			m.text(digits+lower, 9)},
		{name: "AWS", kind: "AWS access key", begin: "AKIA", text: "[default]\naws_access_key_id = AKIA" +
			m.text(upper+"234567", 16) +
			"\naws_secret_access_key = " + m.text(base62+"/+", 40)},
		{name: "AWS, temporary", kind: "AWS access key", begin: "ASIA", text: "secret_key = " + m.text(base62+"/+", 40) +
			"\naccess_key = ASIA" + m.text(upper+"234567", 16)},
		{name: "Slack, bot", kind: "Slack token", text: "xoxb-" + m.text(digits, 12) + "-" + m.text(digits, 13) +
			"-" + m.text(base62, 24)},
		{name: "Slack, app", kind: "Slack token", text: "xapp-1-A" + m.text(digits+upper, 10) + "-" +
			m.text(digits, 13) + "-" + m.text("0123456789abcdef", 64)},
		{name: "Slack, webhook", kind: "Slack webhook", begin: "hooks.slack.com",
			text: "https://hooks.slack.com/services/T" +
				m.text(digits+upper, 9) + "/B" + m.text(digits+upper, 10) + "/" + m.text(base62, 24)},
		{name: "npm", kind: "npm token", text: m.checked("npm_")},
		{name: "PyPI", kind: "PyPI token", text: "pypi-AgE" + "IcHlwaS5vcmc" + m.text(base64url, 150)},
		{name: "JWT, HS256", kind: "signed JWT", text: m.jwt(`{"alg":"HS256","typ":"JWT"}`, 32)},
		{name: "JWT, RS256", kind: "signed JWT", text: m.jwt(`{"typ":"JWT","kid":"1","alg":"RS256"}`, 256)},
	}
	for i := range list {
		if list[i].begin == "" {
			list[i].begin = list[i].text[:10]
		}
	}
	return list
}

func indent(text, by string) string { return by + strings.ReplaceAll(text, "\n", "\n"+by) }

// files are the forms of files in modules, with a function that puts a text into
// one.
var files = []struct {
	path string
	with func(string) string
}{
	{"main.tf", func(text string) string {
		quoted := strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`).Replace(text)
		return "# A module\nvariable \"a\" {\n  default = \"" + quoted + "\"\n}\n"
	}},
	{"heredoc.tf", func(text string) string { return "locals {\n  a = <<-EOT\n" + indent(text, "    ") + "\n  EOT\n}\n" }},
	{"list.tf", func(text string) string {
		return "locals {\n  a = join(\"\\n\", [\n    \"" + strings.ReplaceAll(strings.ReplaceAll(text, `"`, `\"`),
			"\n", "\",\n    \"") + "\",\n  ])\n}\n"
	}},
	{"values.json", func(text string) string {
		data, err := json.MarshalIndent(map[string]any{"a": map[string]any{"b": text}}, "", "  ")
		if err != nil {
			panic(err)
		}
		return string(data) + "\n"
	}},
	{"init.tftpl", func(text string) string {
		return "#cloud-config\nwrite_files:\n  - content: |\n" + indent(text, "      ") + "\n    owner: ${owner}\n"
	}},
	{"README.md", func(text string) string { return "# A module\n\n```sh\n" + text + "\n```\n\nMore.\n" }},
	{"examples/a/run.sh", func(text string) string { return "#!/bin/sh\nexport A='" + text + "'\nexec tofu apply\n" }},
	{"nul.tf", func(text string) string { return "# a\x00b\nlocals {\n  a = \"\x00" + text + "\x00\"\n}\n" }},
	{"default.sh", func(text string) string { return "#!/bin/sh\necho \"${A:-" + text + "}\"\n" }},
}

// Each kind of secret is found in each kind of file, with its line. There are
// 200 files with other secrets.
func TestFound(t *testing.T) {
	t.Parallel()
	n := 0
	for i, file := range files {
		for _, secret := range newMaker(uint64(i)).all() {
			n++
			content := file.with(secret.text)
			before, _, found := strings.Cut(content, secret.begin)
			if !found {
				t.Fatalf("%s has no %s", file.path, secret.name)
			}
			want := []secrets.Finding{{Path: file.path, Line: 1 + strings.Count(before, "\n"), Kind: secret.kind}}
			if diff := cmp.Diff(want, scan(file.path, []byte(content))); diff != "" {
				t.Errorf("%s in %s (-want +got):\n%s\n%s", secret.name, file.path, diff, content)
			}
			windows := strings.ReplaceAll(content, "\n", "\r\n")
			if diff := cmp.Diff(want, scan(file.path, []byte(windows))); diff != "" {
				t.Errorf("%s in %s with CRLF (-want +got):\n%s", secret.name, file.path, diff)
			}
		}
	}
	t.Logf("%d secrets", n)
}

// Private keys are found however their lines are joined or marked.
func TestPrivateKeys(t *testing.T) {
	t.Parallel()
	lines := func(begin string) func(string) string {
		return func(key string) string { return begin + strings.ReplaceAll(key, "\n", "\n"+begin) }
	}
	inner := func(mark string) func(string) string {
		return func(key string) string {
			list := strings.Split(key, "\n")
			for i := 1; i < len(list)-1; i++ {
				list[i] = strings.ReplaceAll(mark, "N", strconv.Itoa(i)) + list[i]
			}
			return strings.Join(list, "\n")
		}
	}
	breaks := func(by string) func(string) string {
		return func(key string) string { return strings.ReplaceAll(key, "\n", by) }
	}
	const private = "PRIVATE " + "KEY"
	m := newMaker(1)
	for kind, key := range map[string]string{
		"PKCS 8":  m.pem(private, m.sequence(1200)),
		"EC":      m.pem("EC "+private, m.sequence(119)),
		"OpenPGP": m.pem("PGP "+private+" BLOCK", append([]byte{0x95}, m.bytes(600)...)),
		"encrypted": strings.Replace(m.pem("RSA "+private, m.bytes(1200)),
			"\n", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,"+m.text("0123456789ABCDEF", 32)+"\n\n", 1),
	} {
		for name, with := range map[string]func(string) string{
			"one line": breaks(""), "spaces": breaks(" "), "comment": lines("// "), "close comment": lines("//"),
			"indented comment": lines("  // "), "hash": lines("# "), "dashes": lines("-- "), "list": inner("- "),
			"patch": lines("+"), "removed": lines("-"), "patch of a list": inner("+ - "), "labels": inner("lN: "),
			"JSON labels": inner(`  "l": `), "XML": breaks("&#10;"), "XML, hexadecimal": breaks("&#xA;"),
			"URL": func(key string) string {
				return strings.NewReplacer("\n", "%0A", "+", "%2B", "/", "%2F", "=", "%3D").Replace(key)
			},
		} {
			isHeader := strings.Contains(name, "label") || name == "one line" || name == "spaces"
			if kind == "encrypted" && isHeader {
				continue // no format has headers there
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				want := []secrets.Finding{{Path: "a", Line: 1, Kind: "private key"}}
				if diff := cmp.Diff(want, scan("a", []byte(with(key)))); diff != "" {
					t.Errorf("(-want +got):\n%s\n%s", diff, with(key))
				}
			})
		}
	}
}

// Tokens are found after escapes and before ends of sentences.
func TestTokensInText(t *testing.T) {
	t.Parallel()
	m := newMaker(1)
	github, gitlab := m.checked("ghp_"), "glpat-"+m.text(digits+upper+lower, 20)
	for text, kind := range map[string]string{
		"token%3D" + github:         "GitHub token",
		"Bearer%20" + github:        "GitHub token",
		`a\u003d` + github:          "GitHub token",
		gitlab + ".somethinglonger": "GitLab token",
		// The sample of GitHub's checksum.
		"ghp_zQWBuTSOoRi4A9spHc" + "VY5ncnsDkxkJ0mLq17": "GitHub token",
		gitlab + ".foo_bar":                             "GitLab token",
		gitlab + ".01.longerthanthat1":                  "GitLab token",
	} {
		want := []secrets.Finding{{Path: "a", Line: 1, Kind: kind}}
		if diff := cmp.Diff(want, scan("a", []byte(text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// The secret key of an AWS access key is found after an escape, a slash or a
// session token. An ordinary key near a service account is not Google's.
func TestNearby(t *testing.T) {
	t.Parallel()
	m := newMaker(1)
	id, secret := "AKIA"+m.text(upper+"234567", 16), m.text(digits+upper+lower, 40)
	key := m.pem("PRIVATE "+"KEY", m.sequence(1200))
	for name, test := range map[string]struct{ text, kind string }{
		"escape":        {`{"c": "` + id + `\n` + secret + `"}`, "AWS access key"},
		"slash":         {id + "/" + secret, "AWS access key"},
		"session token": {id + " " + m.text(digits+upper+lower, 800) + "= " + secret, "AWS access key"},
		"TLS key":       {key + `resource "google_service_account" "a" {}`, "private key"},
		"Google, HCL":   {key + `type = "service_account"`, "Google service account key"},
	} {
		want := []secrets.Finding{{Path: "a", Line: 1, Kind: test.kind}}
		if diff := cmp.Diff(want, scan("a", []byte(test.text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", name, diff, test.text)
		}
	}
}

// Many secrets of each kind are found, so that no check rejects random ones.
func TestRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		for _, secret := range newMaker(1000 + seed).all() {
			if found := scan("a", []byte(secret.text)); len(found) != 1 || found[0].Kind != secret.kind {
				t.Errorf("seed %d: %s: got %v", seed, secret.name, found)
			}
		}
	}
}

// Samples in documentation, placeholders and public things do not count.
func TestNotFound(t *testing.T) {
	t.Parallel()
	m := newMaker(1)
	const private = "PRIVATE " + "KEY"
	key := m.pem("RSA "+private, m.sequence(1200))
	first, rest, _ := strings.Cut(key, "\n")
	last := rest[strings.LastIndex(rest, "\n"):]
	encode := base64.RawURLEncoding.EncodeToString
	sampleSecret := "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"
	keyID := "AKIA" + m.text(upper+"234567", 16)
	jwtIO := `{"sub":"1234567890","name":"John Doe","iat":1516239022}`
	for name, text := range map[string]string{
		"key with dots":          first + "\n..." + last,
		"shortened key":          first + "\n" + rest[:64] + "\n...\n" + last,
		"redacted key":           first + "\nREDACTED" + last,
		"words instead of a key": first + "\nyour private key goes here" + last,
		"base64 of something else": first + "\n" +
			base64.StdEncoding.EncodeToString([]byte(strings.Repeat("not a key ", 20))) + last,
		"OpenPGP placeholder": m.pem("PGP "+private+" BLOCK", nil)[:len("-----BEGIN PGP PRIVATE KEY BLOCK-----\n")] +
			strings.Repeat(strings.Repeat("x", 64)+"\n", 3) + "-----END PGP " + private + " BLOCK-----",
		"OpenPGP message": m.pem("PGP "+private+" BLOCK", append([]byte{0x85}, m.bytes(300)...)),
		"first line of OpenSSH": m.pem("OPENSSH "+private, append([]byte("openssh-key-v1\x00\x00\x00\x00\x04none"),
			m.bytes(29)...)),
		"encrypted key of words": first + "\nProc-Type: 4,ENCRYPTED\n\n" +
			strings.Repeat("PutTheBase64LinesOfAnEncryptedKeyIn\n", 2) + "and/More" + last,
		"encrypted key of no blocks": strings.Replace(m.pem("RSA "+private, m.bytes(99)), "\n",
			"\nProc-Type: 4,ENCRYPTED\n\n", 1),
		"key without an end":       first + "\n" + rest[:strings.LastIndex(rest, "\n")],
		"interpolated key":         first + "\n${key}" + last,
		"public key":               m.pem("PUBLIC KEY", m.sequence(290)),
		"certificate":              m.pem("CERTIFICATE", m.sequence(900)),
		"AWS sample":               "AKIAIOSFODNN7" + "EXAMPLE\n" + sampleSecret,
		"AWS sample secret":        keyID + "\n" + sampleSecret,
		"AWS ID without a secret":  "access_key = " + keyID,
		"AWS ID with a commit":     keyID + "\n" + m.text("0123456789abcdef", 40),
		"AWS ID with asterisks":    keyID + "\n" + strings.Repeat("*", 40),
		"AWS ID far from a secret": keyID + strings.Repeat("\n#", 1100) + "\n" + m.text(digits+upper+lower, 40),
		"GitHub placeholder":       "ghp_" + strings.Repeat("x", 36),
		"GitHub sequence":          "ghp_" + (lower + digits)[:36],
		"GitHub sample":            "gho_" + "16C7e42F292c6912E7710c838347" + "Ae178B4a",
		"wrong checksum":           "ghp_" + m.text(digits+upper+lower, 36),
		"fine-grained placeholder": "github_pat_" + strings.Repeat("X", 22) + "_" + strings.Repeat("X", 59),
		"Larder, wrong checksum":   "larder_" + m.text(digits+upper+lower, 49),
		"Larder, dots":             "TF_TOKEN_registry_example_com=larder_…",
		"GitLab placeholder":       "glpat-" + strings.Repeat("x", 20),
		"GitLab words":             "glpat-your-access-token-here",
		"GitLab, one case":         "glpat-a1b2c3d4e5f6g7h8i9j0",
		"GitLab, capitals":         "glpat-REPLACE_WITH_YOUR_PAT_HERE",
		"GitLab, small words":      "glpat-put_your_pat_into_this",
		"GitLab, secret name":      "projects/p/secrets/glpat-terraform-modules-readonly/versions/latest",
		"GitLab, runner name":      `name = "glrt-shared-runner-fleet-production"`,
		"GitLab, runner UUID":      "glrt-0b7f5e1c-93d4-4c2a-8f6e-1d2b3a4c5e6f",
		"GitLab, deploy name":      "gldt-pipelines-cluster-europe-west1",
		"GitLab, deploy file":      "s3://backups/gldt-registry-pull-2024-01-31.json",
		"GitLab, trigger name":     "# glptt-prefixed-trigger-names-are-old",
		"Slack placeholder":        "xoxb-" + "123456789012-1234567890123-" + strings.Repeat("X", 24),
		"Slack words":              "xoxb-not-a-real-token",
		"Slack sample webhook":     "https://hooks.slack.com/services/T00000000/B00000000/" + strings.Repeat("X", 24),
		"npm placeholder":          "npm_" + strings.Repeat("a", 36),
		"npm name":                 "npm_config_registry",
		"PyPI placeholder":         "pypi-AgE" + "IcHlwaS5vcmc" + strings.Repeat("x", 100),
		"JWT of jwt.io": encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(jwtIO)) +
			"." + encode(m.bytes(32)),
		"JWT of PyJWT": encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"some":"payload"}`)) +
			"." + encode(m.bytes(32)),
		"JWT of Supabase": encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." +
			encode([]byte(`{"role":"anon","iss":"supabase-demo"}`)) + "." + encode(m.bytes(32)),
		"AWS ID with a path": keyID + "\nmodules/Network/PrivateSubnets/RouteMain",
		"Slack webhook of words": "https://hooks.slack.com/services/T0ABC1234/B0ABC12345/" +
			"YourWebhookSuffixGoesHere",
		"JWT without a signature": encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(`{"sub":"a","aud":"b"}`)) + ".",
		"shortened JWT":           m.jwt(`{"alg":"HS256","typ":"JWT"}`, 20),
		"part of a longer word":   "x" + m.checked("ghp_"),
	} {
		if found := scan(name, []byte(text)); len(found) > 0 {
			t.Errorf("got %v in:\n%s", found, text)
		}
	}
}

// UTF-16 with a byte order mark is read as text. Without one it is not.
func TestUTF16(t *testing.T) {
	t.Parallel()
	secret := newMaker(1).checked("ghp_")
	text := "é\U0001F600\n" + strings.Repeat("# ü\n", 100_000) + "a = \"" + secret + "\"\n"
	want := []secrets.Finding{{Path: "main.ps1", Line: 100_002, Kind: "GitHub token"}}
	for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		var encoded []byte
		for _, unit := range utf16.Encode([]rune(text)) {
			encoded = order.AppendUint16(encoded, unit)
		}
		if diff := cmp.Diff(want, scan("main.ps1", append(order.AppendUint16(nil, 0xfeff), encoded...))); diff != "" {
			t.Errorf("%s endian (-want +got):\n%s", name, diff)
		}
		if found := scan("main.ps1", encoded); len(found) > 0 {
			t.Errorf("%s endian without a mark: got %v", name, found)
		}
	}
}

// A secret is found once, wherever it is in a large file.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	secret := newMaker(1).pem("RSA PRIVATE "+"KEY", newMaker(1).sequence(2300))
	content := bytes.Repeat([]byte("# 5678901234567\n"), 100<<10) // 1.6 MiB in lines of 16 bytes
	for at := 0; at+len(secret) < len(content)-1; at += 20011 {
		with := slices.Clone(content)
		copy(with[at:], "\n"+secret+"\n")
		want := []secrets.Finding{{Path: "a", Line: 2 + bytes.Count(with[:at], []byte("\n")), Kind: "private key"}}
		if diff := cmp.Diff(want, scan("a", with)); diff != "" {
			t.Fatalf("at byte %d (-want +got):\n%s", at, diff)
		}
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	secret := []byte(newMaker(1).checked("ghp_"))
	for path, allowed := range map[string]bool{
		"a/b": true, "a/b/c": true, "d.pem": true, "a/bc": false, "a": false, "x/d.pem": false, "d.pem.txt": false,
	} {
		if found := scan(path, secret, "a/b", "d.pem"); (len(found) == 0) != allowed {
			t.Errorf("%s: got %v", path, found)
		}
	}
	for _, path := range []string{"", ".", "/a", "a/", "../a", "a/../b", `a\b`, "a\nb"} {
		if err := secrets.CheckAllowed([]string{path}); err == nil {
			t.Errorf("%q is accepted", path)
		}
	}
	if err := secrets.CheckAllowed([]string{"a", "examples/b c.pem", "é"}); err != nil {
		t.Error(err)
	}
	if err := secrets.CheckAllowed(slices.Repeat([]string{strings.Repeat("a", 1000)}, 9)); err == nil {
		t.Error("9000 bytes of paths are accepted")
	}
	if err := secrets.CheckAllowed(slices.Repeat([]string{"a"}, 101)); err == nil {
		t.Error("101 paths are accepted")
	}
}

// The number of findings is limited.
func TestMany(t *testing.T) {
	t.Parallel()
	m := newMaker(1)
	var text strings.Builder
	for range 1000 {
		text.WriteString(m.checked("ghp_") + " " + m.checked("npm_") + "\n")
	}
	if n := len(scan("a", []byte(text.String()))); n != 100 {
		t.Errorf("got %d findings, want 100", n)
	}
}

// TestRealFiles scans all files but those of Go in the releases of the clients.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	// These are private keys indeed. The tests of the clients need them, so a
	// publisher would allow them.
	judged := map[string]string{
		"internal/backend/remote-state/http/testdata/certs/ca.key":     "private key",
		"internal/backend/remote-state/http/testdata/certs/client.key": "private key",
		"internal/backend/remote-state/http/testdata/certs/server.key": "private key",
		"internal/cloudplugin/testdata/sample.private.key":             "private key",
		"internal/releaseauth/testdata/sample.private.key":             "private key",
		"internal/pluginshared/testdata/sample.private.key":            "private key",
	}
	read, size, withSecrets := 0, int64(0), 0
	clients := []string{"github.com/opentofu/opentofu@*", "github.com/hashicorp/terraform@*"}
	isText := func(name string) bool { return path.Ext(name) != ".go" }
	corpus.Each(t, clients, isText, func(folder, name string, content []byte) {
		read, size = read+1, size+int64(len(content))
		found := scan(name, content)
		for _, f := range found {
			if judged[f.Path] != f.Kind {
				t.Errorf("%s: %v", filepath.Base(folder), f)
			}
		}
		if len(found) > 0 {
			withSecrets++
		}
	})
	t.Logf("%d files with %d bytes, %d of them with private keys", read, size, withSecrets)
}

func FuzzScan(f *testing.F) {
	for _, secret := range newMaker(1).all() {
		f.Add([]byte(secret.text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, found := range scan("a", content) {
			if lines := bytes.Count(content, []byte("\n")) + 1; found.Line < 1 || found.Line > lines {
				t.Errorf("line %d of %d", found.Line, lines)
			}
		}
	})
}

func BenchmarkScan(b *testing.B) {
	content := bytes.Repeat([]byte(
		"resource \"aws_instance\" \"this\" {\n  name = \"${var.name}-npm-key\" # eyes\n}\n",
	), 10_000)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		scan("main.tf", content)
	}
}
