package render

import (
	"regexp"
	"strings"
)

// The languages whose syntax is highlighted, besides HCL, by the names of their
// parts: comment, str, key and num. Package regexp needs linear time.
var (
	shell = regexp.MustCompile(`(?m)(?P<comment>(?:^|[ \t])#.*$)|(?P<str>"(?:[^"\\]|\\.)*"|'[^']*')|` +
		`(?P<num>\$(?:\w+|\{[^}\n]*\}))|(?P<key>(?:^|[ \t;])(?:if|then|else|fi|for|in|do|done|while|case|esac|export)\b)`)
	yaml = regexp.MustCompile(`(?m)(?P<comment>(?:^|[ \t])#.*$)|(?P<key>^[ \t]*(?:- +)*[\w./"'-]+:(?:[ \t]|$))|` +
		`(?P<str>"(?:[^"\\\n]|\\.)*"|'[^'\n]*')|(?P<num>\b(?:true|false|null|[0-9]+(?:\.[0-9]+)?)\b)`)
	json = regexp.MustCompile(`(?m)(?P<comment>(?:^|[ \t])//.*$)|(?P<key>"(?:[^"\\\n]|\\.)*"[ \t]*:)|` +
		`(?P<str>"(?:[^"\\\n]|\\.)*")|(?P<num>\b(?:true|false|null|-?[0-9]+(?:\.[0-9]+)?)\b)`)
	languages = map[string]*regexp.Regexp{
		"sh": shell, "shell": shell, "bash": shell, "zsh": shell, "console": shell, "shell-session": shell,
		"yaml": yaml, "yml": yaml, "json": json, "jsonc": json, "json5": json,
	}
)

// highlight returns source in a language as HTML with highlighted syntax. It has
// the limits of [HCL]. Other languages are plain.
func highlight(language, source string) string {
	syntax := languages[language]
	if syntax == nil || len(source) > maxHighlighted {
		return code(source)
	}
	var out strings.Builder
	end := 0
	for _, m := range syntax.FindAllStringSubmatchIndex(source, -1) {
		for i, class := range syntax.SubexpNames() {
			if i == 0 || m[2*i] < 0 {
				continue
			}
			out.WriteString(code(source[end:m[0]]) + `<span class="` + class + `">` + code(source[m[0]:m[1]]) + "</span>")
			end = m[1]
		}
	}
	out.WriteString(code(source[end:]))
	if out.Len() > 4*len(source)+freeHTML {
		return code(source)
	}
	return out.String()
}
