package web

// The functions of templates.
var (
	Marked    = marked
	HCL       = hcl
	ShortType = shortType
	Prose     = prose
	Described = described
	Plain     = plain
	Line      = line
	Paragraph = paragraph
	Squeeze   = squeeze
)
