package web

// The functions of templates.
var (
	Marked    = marked
	HCL       = hcl
	Prose     = prose
	Described = described
	Line      = line
	Paragraph = paragraph
	Squeeze   = squeeze
)
