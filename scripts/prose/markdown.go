package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// directive matches comments that programs read.
var directive = regexp.MustCompile(`^//(?:[a-z0-9]+:[a-z0-9]|line |export |extern )`)

// exemption matches the names of linters before the reason that people read.
var exemption = regexp.MustCompile(`^//nolint:[\w,]+ *(?:// *)?`)

// markdown returns the comments and the messages of a Go file as Markdown. Each is
// on the line that it has in the file. Messages are string literals of at least
// [minWords] words. Those of tests are left out.
func markdown(name string, source []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := make([]string, strings.Count(string(source), "\n")+2)
	sourceLines := strings.Split(string(source), "\n")
	for _, group := range file.Comments {
		for _, comment := range group.List {
			at := files.Position(comment.Pos())
			for i, text := range strings.Split(comment.Text, "\n") {
				line := at.Line + i
				before := strings.TrimSpace(sourceLines[line-1][:max(0, at.Column-1)])
				if i > 0 {
					before = ""
				}
				lines[line] = prose(text, before != "")
			}
		}
	}
	if !strings.HasSuffix(name, "_test.go") {
		for node := range ast.Preorder(file) {
			if text, ok := message(node); ok {
				line := files.Position(node.Pos()).Line
				lines[line] = strings.TrimSuffix("- "+text+". "+strings.TrimPrefix(lines[line], "- "), " ")
			}
		}
	}
	return []byte(strings.Join(lines[1:], "\n")), nil
}

// prose returns the text of a line of a comment. A comment behind code becomes
// an item of a list, so that it is a paragraph of its own.
func prose(text string, behindCode bool) string {
	switch {
	case exemption.MatchString(text):
		return "- " + exemption.ReplaceAllString(text, "")
	case directive.MatchString(text):
		return ""
	}
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(text, "/*"), "//"), "*/")
	text = strings.TrimPrefix(text, " ")
	if behindCode {
		return "- " + strings.TrimSpace(text)
	}
	return text
}

// minWords is how many words make a string literal a message.
const minWords = 4

var word = regexp.MustCompile(`(?:^|\s)\p{L}{2,}[,.:;]?(?:\s|$)`)

func message(node ast.Node) (string, bool) {
	literal, ok := node.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil || strings.Contains(text, "\n") || len(strings.Fields(text)) < minWords {
		return "", false
	}
	if words := strings.Fields(text); len(word.FindAllString(strings.Join(words, "  "), -1))*2 < len(words) {
		return "", false
	}
	return text, true
}
