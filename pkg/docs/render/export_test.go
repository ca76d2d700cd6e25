package render

// Unsanitized returns a README as the builder writes it.
func Unsanitized(source string, folder Folder) string {
	document := parse(source)
	if document == nil {
		return ""
	}
	w := write(document, source, folder, nil)
	if w.full() {
		return ""
	}
	return string(w.out)
}

// Sanitized returns HTML as the policy leaves it.
func Sanitized(source string) string { return sanitize().Sanitize(source) }
