package registry

// Vacancy describes the address of a version that can be published.
type Vacancy struct {
	// Address is the address without a version.
	Address string
	// NewNamespace is the name of its namespace if nothing was ever published there,
	// and no signing key was added.
	NewNamespace string
	// Similar is another address with a listed version, if no version was ever
	// published at Address. It is the lower-case form of Address.
	Similar string
}
