package web

import (
	"fmt"
	"html"
	"html/template"
	"strconv"
	"strings"
	texttemplate "text/template"
	"time"
	"unicode"

	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// htmlFuncs are the functions of HTML templates.
var htmlFuncs = template.FuncMap{
	"text": textOf, "prose": prose, "name": breakable, "plain": highlight.Visible, "static": staticPath, "date": date, "day": day,
	"moment": moment, "rfc3339": rfc3339, "bytes": size, "count": count, "html": finished, "marked": marked, "hcl": hcl,
	"describedAt": describedAt,
}

// markdownFuncs are the functions of Markdown templates.
var markdownFuncs = texttemplate.FuncMap{
	"line": line, "paragraph": paragraph, "date": date, "moment": moment, "bytes": size, "count": count,
	"plain": highlight.Visible, "diff": diff, "code": inlineCode, "fence": fence,
	"isLong": func(text string) bool { return strings.Contains(text, "\n") },
}

// hcl returns configuration that a page suggests as HTML with highlighted syntax.
func hcl(source string) template.HTML {
	return finished(highlight.Code("hcl", highlight.Visible(source)))
}

// isolated returns escaped text isolated from the direction of the text around
// it. Text of ASCII characters needs no isolation, which saves bytes in tables
// of hundreds of names.
func isolated(escaped string) template.HTML {
	if strings.IndexFunc(escaped, func(r rune) bool { return r > unicode.MaxASCII }) >= 0 {
		escaped = "<bdi>" + escaped + "</bdi>"
	}
	return template.HTML(escaped) //nolint:gosec // it is escaped
}

func textOf(text string) template.HTML { return isolated(html.EscapeString(highlight.Visible(text))) }

// prose is like textOf, with the parts between backticks as code.
func prose(text string) template.HTML { return withCode(text, html.EscapeString) }

// withCode returns the parts of a text between backticks as code. rest returns any
// other part as HTML.
func withCode(text string, rest func(string) string) template.HTML {
	parts := strings.Split(highlight.Visible(text), "`")
	var out strings.Builder
	for i, part := range parts {
		isCode := i%2 == 1 && i < len(parts)-1
		switch {
		case isCode && part != "":
			out.WriteString("<code>" + html.EscapeString(part) + "</code>")
		case isCode:
			out.WriteString("``")
		case i%2 == 1: // not closed
			out.WriteString("`" + rest(part))
		default:
			out.WriteString(rest(part))
		}
	}
	return isolated(out.String())
}

// breakAbove is the length of the longest name that fits into a line anywhere.
const breakAbove = 30

// breakable is like textOf, for a name. A browser may break a long one after an
// underscore or a dot.
func breakable(name string) template.HTML {
	escaped := html.EscapeString(highlight.Visible(name))
	if len(name) > breakAbove {
		escaped = breaks.Replace(escaped)
	}
	return isolated(escaped)
}

var breaks = strings.NewReplacer("_", "_<wbr>", ".", ".<wbr>")

// finished returns HTML that package render made at publish, or package highlight.
func finished(text string) template.HTML { return template.HTML(text) } //nolint:gosec // these packages are safe

// date returns a day such as 2 Nov 2026, or an empty string for the zero time.
func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2 Jan 2006")
}

// dayOf returns a day such as 2 Nov, with its year if that is not the year of now.
func dayOf(t, now time.Time) string {
	if t.UTC().Year() != now.UTC().Year() {
		return date(t)
	}
	return t.UTC().Format("2 Jan")
}

// moment returns a time such as 2 Nov 2026, 09:12 UTC.
func moment(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") }

// roundUp returns a time in whole minutes that is not before t, for people who
// wait for it. The last minute that JSON can have stays.
func roundUp(t time.Time) time.Time {
	up := t.UTC().Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
	if up.Year() > t.UTC().Year() && t.UTC().Year() == 9999 {
		return t.UTC().Truncate(time.Minute)
	}
	return up
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// rfc3339 returns a time as the datetime attribute has it.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// size returns a number of bytes such as 41.3 KiB.
func size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// count returns a number such as 1,204.
func count(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plural returns a number with a noun, in the plural unless it is one.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}
