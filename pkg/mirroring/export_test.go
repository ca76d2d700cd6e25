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

// Choose selects of what an origin offers.
var Choose = Wanted.choose

// Platforms selects of the platforms that a version has.
var Platforms = Wanted.platforms
