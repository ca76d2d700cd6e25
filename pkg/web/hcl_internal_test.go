package web

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each token has its class. Files need not be valid.
func TestHCLHTML(t *testing.T) {
	t.Parallel()
	span := strings.NewReplacer("[", `<span class="`, "|", `">`, "]", "</span>")
	for source, want := range map[string]string{
		"resource \"a\" b {\n  count = 2 # two\n}": "[key|resource] [str|&#34;a&#34;] b {\n  [key|count] = [num|2] [comment|# two]\n}",
		"x = y.null == null // no":                 "x = y.null == [num|null] [comment|// no]",
		"/* a\nb */ c = 1.5":                       "[comment|/* a\nb */] c = [num|1.5]",
		"a = \"${b[\"c\"]} \\\" #\" # d":           "a = [str|&#34;${b[&#34;c&#34;]} \\&#34; #&#34;] [comment|# d]",
		"a = <<-EOT\n  # <b>\n  EOT\nb = true":     "a = [str|&lt;&lt;-EOT\n  # &lt;b&gt;\n  EOT]\nb = [num|true]",
		"a = <<EOT\nb":                             "a = [str|&lt;&lt;EOT\nb]",
		"a = \"b\nc = \"d":                         "a = [str|&#34;b]\nc = [str|&#34;d]",
		"/* a":                                     "[comment|/* a]",
		"/*/ a":                                    "[comment|/*/ a]",
		"größe = é1":                               "größe = é[num|1]",
		"\u202e\"<script>\"":                       "[bidi|\\u202e][str|&#34;&lt;script&gt;&#34;]",
		"  a = { version = \"1\" }\n\tversion  = \"2\"": "  a = { version = [str|&#34;1&#34;] }\n\t[key|version]  = [str|&#34;2&#34;]",
		"": "",
	} {
		brackets := strings.NewReplacer("b[", "b\x00", "\"]", "\"\x01", "&#34;]}", "&#34;\x01}").Replace(want)
		want = strings.NewReplacer("\x00", "[", "\x01", "]").Replace(span.Replace(brackets))
		if diff := cmp.Diff(want, hclHTML(source)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", source, diff)
		}
	}
}

// Nothing of a hostile file is lost, and none takes more than linear time.
func TestHCLHTMLOfHostileFiles(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"\"", "${\"", "/*", "<<A\n", "a ", "a{", "\n", "a \"b\" ", "{", "}", "\"\\"} {
		source := strings.Repeat(part, 256<<10/len(part))
		lines := splitLines(hclHTML(source))
		if textOfHTML(strings.Join(lines, "\n")) != source {
			t.Errorf("repeated %q becomes another text", part)
		}
	}
}
