package rehearsal

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/larder-registry/larder/pkg/cloud/partition"
)

// report is what a rehearsal has found, for others to read. Its Markdown names
// no account, host or credential.
type report struct {
	// where is AWS or an emulator. release and partition are those of the
	// deployed stack, commit is the one of the checkout, and clients are the
	// programs that used it.
	where, release, commit, partition string
	clients                           []string

	begun  time.Time
	steps  []reportedStep
	checks []reportedCheck
	hidden []string // texts that the report must not contain
}

type reportedStep struct {
	name string
	took time.Duration
	err  error
}

type reportedCheck struct {
	name, want string
	result     outcome
	seen       string
	took       time.Duration
}

// outcome is the result of a check.
type outcome string

const (
	asExpected outcome = "as expected"
	differs    outcome = "DIFFERS"
	// notChecked means that the account or the emulator does not show it.
	notChecked outcome = "not checked"
)

// hide adds texts that the report must not contain, such as the number of the
// account.
func (r *report) hide(texts ...string) {
	for _, text := range texts {
		if len(text) > 3 { // a shorter one would hide parts of words
			r.hidden = append(r.hidden, text)
		}
	}
}

func (r *report) markdown(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Rehearsal of Larder\n\n| | |\n| --- | --- |\n")
	for _, row := range [][2]string{
		{"Release", cmp.Or(r.release, "not deployed")}, {"Commit", r.commit}, {"Where", r.where}, {"Partition", r.partition},
		{"Clients", strings.Join(r.clients, ", ")}, {"Began", r.begun.UTC().Format(time.RFC3339)},
		{"Took", now.Sub(r.begun).Round(time.Second).String()},
	} {
		fmt.Fprintf(&out, "| %s | %s |\n", row[0], r.cell(row[1]))
	}
	if len(r.checks) > 0 {
		fmt.Fprintf(&out, "\n## Checks\n\n| Check | Result | Expected | Seen | Seconds |\n"+
			"| --- | --- | --- | --- | --- |\n")
	}
	for _, c := range r.checks {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %.1f |\n", r.cell(c.name), c.result, r.cell(c.want), r.cell(c.seen),
			c.took.Seconds())
	}
	fmt.Fprintf(&out, "\n## Steps\n\n| Step | Result | Seconds |\n| --- | --- | --- |\n")
	var failed strings.Builder
	for _, s := range r.steps {
		result := "passed"
		if s.err != nil {
			result = "FAILED"
			fmt.Fprintf(&failed, "\n## Failed: %s\n\n~~~text\n%s\n~~~\n", r.scrub(s.name), r.scrub(s.err.Error()))
		}
		fmt.Fprintf(&out, "| %s | %s | %.1f |\n", r.cell(s.name), result, s.took.Seconds())
	}
	return out.String() + failed.String()
}

func (r *report) cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(strings.Fields(r.scrub(text)), " "))
}

// scrubbers replace what identifies an account or its owner, or gives access.
var scrubbers = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`(?i)\bX-Amz-[a-z-]+=[^\s"'<>\x60]+`), "[query]"},
	{regexp.MustCompile(`(?i)\barn:[a-z-]+:[^\s"'<>\x60,]+`), "[arn]"},
	{regexp.MustCompile(`(?i)[a-z0-9_.-]+\.(` + domains() + `)[^\s"'<>\x60,]*`), "[host]"},
	{regexp.MustCompile(`\b(A3T|AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AIPA|ANPA|ANVA|APKA|AROA)[A-Z0-9]{8,}`), "[key]"},
	{regexp.MustCompile(`larder_[0-9A-Za-z]+`), "[token]"},
	{regexp.MustCompile(`\beyJ[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]*)*`), "[token]"},
	{regexp.MustCompile(`(?i)\bbearer\s+[^\s"'<>]+`), "[token]"},
	{regexp.MustCompile(`[0-9A-Za-z._%+-]+@[0-9A-Za-z-]+\.[0-9A-Za-z.-]+`), "[email]"},
	{regexp.MustCompile(`\b\d{4}-\d{4}-\d{4}\b`), "[account]"},
	// Errors of the network name hosts and addresses of its owner.
	{regexp.MustCompile(`(?i)\b(lookup|proxyconnect tcp:|dial tcp) [^\s"'<>]+( on [^\s"'<>]+)?`), "$1 [host]"},
	{regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(:\d+)?\b`), "[address]"},
	{regexp.MustCompile(`\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\](:\d+)?`), "[address]"},
}

func domains() string {
	names := []string{`execute-api`, `amazoncognito\.com`, `api\.aws`}
	for _, p := range partition.All() {
		names = append(names, regexp.QuoteMeta(p.Domain))
	}
	return strings.Join(names, "|")
}

var (
	// urls matches URLs with their queries.
	urls    = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>\x60]+`)
	numbers = regexp.MustCompile(`\d+`)
	// opaque matches texts in base64 that are as long as a secret access key.
	opaque = regexp.MustCompile(`[0-9A-Za-z+/_=-]{40,}`)
)

// scrub replaces in a text what the report must not contain.
func (r *report) scrub(text string) string {
	text = urls.ReplaceAllString(text, "[url]")
	// The longest comes first, since it can contain others.
	slices.SortFunc(r.hidden, func(a, b string) int { return len(b) - len(a) })
	for _, hidden := range r.hidden {
		text = strings.ReplaceAll(text, hidden, "[hidden]")
	}
	for _, s := range scrubbers {
		text = s.pattern.ReplaceAllString(text, s.by)
	}
	text = numbers.ReplaceAllStringFunc(text, func(digits string) string {
		if len(digits) == 12 {
			return "[account]"
		}
		return digits
	})
	return opaque.ReplaceAllStringFunc(text, func(word string) string {
		for _, kind := range []func(rune) bool{unicode.IsUpper, unicode.IsLower, unicode.IsDigit} {
			if !strings.ContainsFunc(word, kind) {
				return word
			}
		}
		return "[secret]"
	})
}
