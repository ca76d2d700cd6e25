package extract

import "github.com/larder-registry/larder/pkg/docs"

// Fit drops parts of documentation until it can be stored.
func Fit(d docs.Documentation) docs.Documentation {
	e := extraction{Documentation: d}
	e.fit()
	return e.Documentation
}
