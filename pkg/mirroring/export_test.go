package mirroring

// What reads the documents of a folder.
var (
	ParseIndex   = parseIndex
	ParseVersion = parseVersion
)

// Filenames returns what a document of a version names.
func Filenames(packages []folderPackage) []string {
	var names []string
	for _, p := range packages {
		names = append(names, p.filename)
	}
	return names
}
