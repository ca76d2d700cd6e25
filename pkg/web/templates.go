package web

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	texttemplate "text/template"
)

//go:embed templates
var templateFiles embed.FS

// executor is a parsed template.
type executor interface {
	ExecuteTemplate(w io.Writer, name string, data any) error
}

// parsed has the templates of pages, each parsed at its first use, so that a
// function starts quickly.
var parsed sync.Map // by the name of the file: func() (executor, error)

// render writes a page. name is the name of its file, such as home.html.
func render(w io.Writer, name string, v view) error {
	parse, ok := parsed.Load(name)
	if !ok {
		parse, _ = parsed.LoadOrStore(name, sync.OnceValues(func() (executor, error) { return parseTemplate(name) }))
	}
	once, _ := parse.(func() (executor, error))
	t, err := once()
	if err != nil {
		return err
	}
	return t.ExecuteTemplate(w, "layout", v)
}

// parseTemplate parses the layout, the parts of pages, and one page.
func parseTemplate(name string) (executor, error) {
	form := name[strings.LastIndexByte(name, '.'):]
	files := []string{"templates/layout" + form, "templates/parts" + form, "templates/" + name}
	var t executor
	var err error
	if form == ".html" {
		t, err = template.New(name).Funcs(htmlFuncs).ParseFS(templateFiles, files...)
	} else {
		t, err = texttemplate.New(name).Funcs(markdownFuncs).ParseFS(templateFiles, files...)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot parse the template: %w", err)
	}
	return t, nil
}
