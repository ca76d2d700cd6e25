package render_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/docs/render"
)

func TestReadmes(t *testing.T) {
	t.Parallel()
	for file, name := range map[string]string{
		"vpc": "vpc", "html": "endpoints", "old": "endpoints", "tables": "vpc", "documents": "vpc",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile("testdata/" + file + ".md")
			if err != nil {
				t.Fatal(err)
			}
			readme := render.Markdown(string(source), render.Folder{Name: name})
			checkReadme(t, readme)
			text := readme.HTML + "\n"
			if readme.Rest != "" {
				text += "<!-- the rest -->\n" + readme.Rest + "\n"
			}
			golden.Equal(t, "testdata/"+file+".html", []byte(text))
		})
	}
}

// A first heading that repeats the name is dropped.
func TestRepeatedName(t *testing.T) {
	t.Parallel()
	for title, dropped := range map[string]bool{
		"vpc": true, "AWS VPC Terraform module": true, "terraform-aws-vpc": true, "acme/vpc/aws": true,
		"acme/VPC/aws": true, "acme/network/aws": false, "acme/vpc": false, "VPC peering": false,
	} {
		if got := render.Markdown("# "+title+"\n\nText.", render.Folder{Name: "vpc"}).HTML == "<p>Text.</p>"; got != dropped {
			t.Errorf("%q is dropped: %t, want %t", title, got, dropped)
		}
	}
}

// No level of headings is skipped, whichever levels the author chose.
func TestHeadingLevels(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"# a\n## b\n### c\n## d\n# e":       "h3 h4 h5 h4 h3",
		"# vpc\n## a\n### b\n## c":          "h3 h4 h3",
		"### a\n# b\n### c\n###### d\n## e": "h3 h3 h4 h5 h4",
		"# a\n<h4>b</h4>\n\n## c":           "h3 h4 h4",
		"# a\n## b\n### c\n#### d\n##### e": "h3 h4 h5 h6 h6",
	} {
		var got []string
		readme := render.Markdown(source, render.Folder{Name: "vpc"})
		for _, tag := range regexp.MustCompile(`<(h\d)`).FindAllStringSubmatch(readme.HTML, -1) {
			got = append(got, tag[1])
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", source, diff)
		}
	}
}

// The elements of READMEs, and the values of their attributes.
var (
	attributes = map[string]*regexp.Regexp{
		"a href":           regexp.MustCompile(`^(https?://[^/?#@]+([/?#]|$)|mailto:[^/]|#(readme|(in|out)put)-.|#(inputs|resources|dependencies)$)`),
		"a rel":            regexp.MustCompile(`^nofollow noopener noreferrer$`),
		"a id":             regexp.MustCompile(`^readme-([\pL\pM\pN_-]+|fnref:\d+)$`),
		"a data-folder":    regexp.MustCompile(`^(\.|(modules|examples)/[A-Za-z0-9._-]+)(#[\pL\pM\pN_-]+)?$`),
		"a data-file":      regexp.MustCompile(`^[\pL\pM\pN ._/@+,=()-]+(#L\d+)?$`),
		"a aria-label":     regexp.MustCompile(`^Back to the text$`),
		"img data-image":   regexp.MustCompile(`^[\pL\pM\pN ._/@+,=()-]+$`),
		"img alt":          regexp.MustCompile(`.`),
		"img width":        regexp.MustCompile(`^\d{1,5}$`),
		"img height":       regexp.MustCompile(`^\d{1,5}$`),
		"img loading":      regexp.MustCompile(`^lazy$`),
		"li id":            regexp.MustCompile(`^readme-fn:\d+$`),
		"li class":         regexp.MustCompile(`^task$`),
		"blockquote class": regexp.MustCompile(`^(note|ok|warn|bad)$`),
		"heading id":       regexp.MustCompile(`^readme-[\pL\pM\pN_-]+$`),
		"td align":         regexp.MustCompile(`^(left|center|right)$`),
		"th align":         regexp.MustCompile(`^(left|center|right)$`),
		"td colspan":       regexp.MustCompile(`^\d{1,3}$`),
		"th colspan":       regexp.MustCompile(`^\d{1,3}$`),
		"td rowspan":       regexp.MustCompile(`^\d{1,3}$`),
		"th rowspan":       regexp.MustCompile(`^\d{1,3}$`),
		"ol start":         regexp.MustCompile(`^\d{1,9}$`),
		"details open":     regexp.MustCompile(`^$`),
		"pre tabindex":     regexp.MustCompile(`^0$`),
		"pre role":         regexp.MustCompile(`^group$`),
		"pre aria-label":   regexp.MustCompile(`^Code$`),
		"span class":       regexp.MustCompile(`^(key|str|num|ty|comment|bidi)$`),
	}
	allowed = strings.Fields(`a abbr b blockquote br caption cite code dd del details dfn div dl dt em h3 h4 h5 h6 hr
		i img ins kbd li mark ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var`)
	headings = []string{"h3", "h4", "h5", "h6"}
)

// checkHTML fails the test unless all elements and attributes are allowed, and
// the HTML ends with the element that it is inside.
func checkHTML(t *testing.T, source string) {
	t.Helper()
	document, err := html.Parse(strings.NewReader(`<main><section>` + source + `</section><footer></footer></main>`))
	if err != nil {
		t.Errorf("cannot parse the HTML: %v", err)
		return
	}
	main := document.FirstChild.LastChild.FirstChild
	if main.LastChild.Data != "footer" || main.LastChild.PrevSibling != main.FirstChild {
		t.Errorf("the HTML does not end with its parent: %.2000s", source)
	}
	ids := make(map[string]bool)
	for n := range main.FirstChild.Descendants() {
		switch n.Type {
		case html.ElementNode:
			checkElement(t, n.Data, n.Attr)
			checkRel(t, n)
			for _, a := range n.Attr {
				if a.Key == "id" && ids[a.Val] {
					t.Errorf("two elements have the anchor %q", a.Val)
				}
				ids[a.Val] = ids[a.Val] || a.Key == "id"
			}
		case html.TextNode:
			if strings.ContainsFunc(n.Data, isBidi) {
				t.Errorf("the text %.200q has a control character that changes its direction", n.Data)
			}
		default:
			t.Errorf("the HTML has a node of type %d", n.Type)
		}
	}
}

func isBidi(r rune) bool { return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 }

func checkElement(t *testing.T, name string, attrs []html.Attribute) {
	t.Helper()
	if !slices.Contains(allowed, name) {
		t.Errorf("the HTML has the element %q", name)
	}
	element := name
	if slices.Contains(headings, name) {
		element = "heading"
	}
	for _, a := range attrs {
		if values := attributes[element+" "+a.Key]; values == nil || !values.MatchString(a.Val) {
			t.Errorf("the HTML has %s %s=%q", name, a.Key, a.Val)
		}
	}
}

// checkRel fails the test unless the links to other sites have a rel.
func checkRel(t *testing.T, n *html.Node) {
	t.Helper()
	values := make(map[string]string)
	for _, a := range n.Attr {
		values[a.Key] = a.Val
	}
	if href := values["href"]; href != "" && !strings.HasPrefix(href, "#") && values["rel"] == "" {
		t.Errorf("the link to %q has no rel", href)
	}
}

func checkReadme(t *testing.T, readme render.Readme) {
	t.Helper()
	checkHTML(t, readme.HTML+"\n"+readme.Rest)
	checkHTML(t, readme.HTML)
	checkHTML(t, readme.Rest)
}

// vpc is a folder with files and inputs.
var vpc = render.Folder{
	Name: "vpc", Module: "vpc",
	Files: map[string]render.File{
		"docs/a.md": {}, "CHANGELOG.md": {}, "examples/a/main.tf": {}, "examples/main.tf": {}, "main.tf": {}, "modules/": {},
		"modules/CHANGELOG.md": {}, "modules/m/": {}, "docs/badge-flow.png": {IsImage: true, Width: 1, Height: 1}, "a \"b.md": {},
		"docs/c.png": {IsImage: true, Width: 800, Height: 400}, "docs/d e.svg": {IsImage: true},
	},
	Anchors: map[string]bool{"inputs": true, "resources": true, "dependencies": true, "outputs": false, "input-vpc_Name": true},
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, source := range map[string]string{
		"empty":                         "",
		"heading is the name":           "# VPC\n\na",
		"heading has fillers":           "# terraform-aws-vpc\n\na",
		"heading says more":             "# VPC peering",
		"second heading":                "# A\n# vpc",
		"second level":                  "## vpc",
		"sixth level":                   "###### a",
		"same headings":                 "# a\n# a\n# a-1",
		"anchors of GitHub":             "# a *B* & `c`_d Ü!",
		"link to a heading":             "[x](#A)\n# a",
		"link to nothing":               "[x](#b)\n# a",
		"link to a file":                "[x](docs/a.md)",
		"link to a submodule":           "[x](modules/a)",
		"link to an example":            "[x](./examples/a-b/)",
		"link to an example's README":   "[x](examples/a/README.md)",
		"link to a file of one":         "[x](examples/a/main.tf)",
		"link above":                    "[x](modules/..)",
		"image":                         "![a](https://b.example/c.png)",
		"image without a text":          "![](https://b.example/c.png)",
		"image in the module":           "![](docs/c.png)",
		"image in a link":               "[![a](b.png)](https://c.example)",
		"entities":                      `&lt;b&gt; \&amp; &copy;`,
		"tight list":                    "- a\n- b",
		"list from 3":                   "3. a",
		"link to a line":                "[x](./main.tf#L12-L20) [y](main.tf#l1)",
		"link to a file without one":    "[x](docs/b.md) [y](https:docs/a.md) [z](//docs/a.md)",
		"link to an odd file":           `[x](<a "b.md>)`,
		"link from the root":            "[x](/docs/a.md) [y](/) [z](./README.md)",
		"link to an anchor of a folder": "[x](modules/a#inputs) [y](./README.md#The-Usage) [z](modules/a/README.md#input\\_b)",
		"link to a file beside folders": "[x](examples/main.tf) [y](modules/CHANGELOG.md) [z](modules/m)",
		"link out of the module":        "[x](../docs/a.md) [y](docs/../../main.tf)",
		"link to an input":              `[x](#input\_vpc_Name) [y](#input_vpc_name) [z](#inputs) [o](#outputs) [r](#resources) [m](#modules)`,
		"task":                          "- [x] a\n- [ ] b\n\nc [x] d",
		"image with a width": `<img src="./docs/c.png" alt="a" width="200"> <img src="docs/c.png" width="50%"/> ` +
			`<img src="docs/d%20e.svg" width=30>`,
		"image of the repository": "![a](https://github.com/acme/terraform-aws-vpc/blob/main/docs/c.png?raw=true) " +
			"![b](https://raw.githubusercontent.com/acme/terraform-aws-vpc/refs/heads/main/docs/c.png) " +
			"![c](https://github.com/acme/x/blob/main/e.png) ![d](https://github.com/acme/x/blob/main/docs/c.png)",
		"image in a link of the module": "[![a](docs/c.png)](docs/a.md)",
		"images that are badges": "[![CI](https://github.com/a/b/actions/workflows/ci.yml/badge.svg)]" +
			"(https://github.com/a/b) ![a](https://img.shields.io/badge/a-b) " +
			"<a href=\"https://a.example\">\n<img src=\"https://codecov.io/a.svg\"/></a>\n\n" +
			"a ![b](https://img.shields.io/b) c\n\n![badges](docs/c.png) " +
			"![a](https://github.com/a/tf-vpc/blob/main/docs/badge-flow.png?raw=true) ![b](https://a.example/badges/flow.png) " +
			"[![c](https://gitlab.com/a/badges/main/pipeline.svg)](https://gitlab.com/a)",
		"controls in text": "a\u202Eb\u0007",
		"controls in code": "`a\u202Eb`",
		"generated text": "a\n<!-- BEGIN_TF_DOCS -->\n## Inputs\n\n| Name | Description |\n|--|--|\n| b | c |\n" +
			"<!-- END_TF_DOCS -->\nd",
		"generated with text of a template": "<!-- BEGIN_TF_DOCS -->\n# A\n\nb\n\n## Usage\n```hcl\n## Inputs\na = 1\n```\n" +
			"## Inputs\n\n### x\n\nDescription: c\n\n## License\n\nd\n<!-- END_TF_DOCS -->",
		"generated by other tools": "a\n<!--- BEGIN_TF_DOCS --->\n## Inputs\nNo inputs.\n<!--- END_TF_DOCS --->\n" +
			"<!-- BEGIN TFDOC -->\n## Variables\n\n" +
			"| name | description | type |\n|---|---|:---:|\n| b | c | d |\n<!-- END TFDOC -->\n" +
			"<!-- BEGIN_AUTOMATED_TF_DOCS_BLOCK -->\n## Outputs\n\n| Name | Description |\n|--|--|\n| b | c |\n" +
			"<!-- END_AUTOMATED_TF_DOCS_BLOCK -->",
		"comment":              "<!-- a\n\nb -->\nc",
		"badges":               "![a](https://b.example/c.png)![d](https://b.example/e.png)",
		"linked badges":        "[![a](b.png)](https://c.example)[![d](e.png)](https://f.example)",
		"name with a badge":    "# VPC ![a](https://b.example/c.png)\n\nd",
		"heading with a badge": "# A b ![c](https://d.example/e.png)",
		"heading of an image":  "# ![a](https://b.example/c.png)",
		"footnote":             "a[^1]\n\n[^1]: b",
		"footnotes": "# a[^b]\n\nc[^b] d[^x] [e[^b]](https://a.example) f[^none]\n\n[^x]: *g*\n\n    h[^b]\n[^b]: i\n" +
			"[^unused]: j\n",
		"text between generated tables": "<!-- BEGIN_TF_DOCS -->\n## Resources\n\n| Name | Type |\n|--|--|\n| b | c |\n" +
			"> [!NOTE]\n> a\n## Inputs\n\n| Name | Description |\n|--|--|\n| b | c |\nd\n\n" +
			"## Requirements\n\nThe following requirements are needed:\n\n" +
			"- <a name=\"requirement_a\"></a> [a](#requirement_a)\n\n- <a name=\"requirement_b\"></a> b\n\n- e\n<!-- END_TF_DOCS -->\n",
		"generated without comments": "# A\n\na\n\n<!-- markdownlint-disable -->\n## Inputs\n\n| Name | Description |\n" +
			"|--|--|\n| <a name=\"input_b\"></a> [b](#input\\_b) | c |\n<!-- markdownlint-restore -->\n\n" +
			"## Modules\n\n| Name | Description |\n|--|--|\n| core | of people |\n\n## Resources\n\n| Name | Type |\n|--|--|\n" +
			"| [aws_vpc.a](https://registry.terraform.io/providers/hashicorp/aws/latest/docs/resources/vpc) | resource |\n\n## Outputs\n\nd\n\n## Documentation\n\n" +
			"<!-- BEGIN_TF_DOCS -->\n## Inputs\nNo inputs.\n<!-- END_TF_DOCS -->",
		"generated without an end": "a\n\n<!-- BEGIN_TF_DOCS -->\nb",
		"element across blocks":    "<details>\n\na\n\n</details>\n\nb",
		"end tag without a start":  "> a\n> </blockquote>\n> </div>\n\nb",
		"alert":                    "> [!NOTE]\n> a *b*\n>\n> c",
		"alerts": "> [!TIP]\n> a\n\n> [!Important]\n> a\n\n> [!WARNING]\n> a\n\n> [!CAUTION]\n> a\n\n" +
			"> [!OTHER]\n> a\n\n> [!NOTE] a\n",
		"shell":                "```sh\n# a $b\nexport A=\"b # c\" # d\nfor x in $A ${B}; do echo 'e'#f; done\n```",
		"YAML":                 "```YAML\n# a\na-b: true\nc:\n  - d: \"e: f\" # g\n  - 1.5\nh: http://a.example\n```",
		"JSON":                 "```json\n{\"a\": [1, -2.5, true, \"b\"], \"c\\\"\" : null}\n```",
		"diagram":              "```mermaid\ngraph LR; a-->b\n```",
		"other":                "```python\n# a\n```",
		"end tag of a quote":   "> a </blockquote> *b*\n>\n> c",
		"link in a link":       `<a href="https://a.example">a [b](https://b.example)</a> [c](https://c.example)`,
		"open link":            "<a href=\"https://a.example\">a\n\n[b](https://b.example)",
		"raw link in a link":   `<a href="https://a.example">a <a href="https://b.example">b</a> c</a>`,
		"block in a paragraph": "a <div>b</div>",
		"invalid UTF-8":        "a\xffb",
		"Windows lines":        "a\r\n\r\n    b\r\n    c",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readme := render.Markdown(source, vpc)
			checkReadme(t, readme)
			texts.Text(t, readme.HTML+"\n")
		})
	}
}

// A long README has two parts. The first one does not end with a heading.
func TestParts(t *testing.T) {
	t.Parallel()
	part := func(size int) string { return "# a\n\n" + strings.Repeat("b", size) + "\n\n" }
	for name, c := range map[string]struct {
		source string
		// first and rest are the numbers of headings.
		first, rest int
	}{
		"short":            {part(1_000), 1, 0},
		"one long block":   {part(5_000), 1, 0},
		"little remains":   {part(1_400) + part(200), 2, 0},
		"two parts":        {part(1_400) + part(900) + part(900), 1, 2},
		"long first block": {part(5_000) + part(900), 1, 1},
		"open element":     {"<details>\n\n" + part(1_400) + part(900) + "</details>\n\n" + part(900), 2, 1},
		"headings only":    {strings.Repeat("# abcdefgh\n\n", 300), 300, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readme := render.Markdown(c.source, render.Folder{})
			checkReadme(t, readme)
			if got := strings.Count(readme.HTML, "<h3"); got != c.first {
				t.Errorf("the first part has %d headings, want %d", got, c.first)
			}
			if readme.RestHeadings != c.rest {
				t.Errorf("the rest has %d headings, want %d", readme.RestHeadings, c.rest)
			}
			if got := strings.Count(readme.Rest, "<h3"); got != readme.RestHeadings {
				t.Errorf("the rest has %d headings, but counts %d", got, readme.RestHeadings)
			}
		})
	}
}

func BenchmarkMarkdown(b *testing.B) {
	source, err := os.ReadFile("testdata/vpc.md")
	if err != nil {
		b.Fatal(err)
	}
	readme := strings.Repeat(string(source), 100<<10/len(source))
	b.SetBytes(int64(len(readme)))
	for b.Loop() {
		render.Markdown(readme, render.Folder{Name: "vpc"})
	}
}
