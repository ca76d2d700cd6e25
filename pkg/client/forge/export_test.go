package forge

// Candidates returns the names that a ref can have.
func Candidates(ref string) []string { return candidates(ref) }

// ReadRefs reads a response of any version that has the commits of names.
func ReadRefs(answer []byte, names []string) (map[string]string, error) {
	p, format, err := advertisement(answer)
	if err != nil || format != "" {
		p = packets{answer}
	}
	return p.refs(names)
}
