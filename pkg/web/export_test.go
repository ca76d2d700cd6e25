package web

import "html/template"

// The functions of templates.
var (
	Marked    = marked
	HCL       = hcl
	Prose     = prose
	Described = func(text string) template.HTML { return describedAt(text, link{}) }
	Line      = line
	Paragraph = paragraph
	Squeeze   = squeeze
)
