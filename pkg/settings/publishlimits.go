package settings

import (
	"errors"
	"fmt"
	"strconv"
)

// PublishLimits limit a publish through the publish API, and the uploads of an
// identity.
type PublishLimits struct {
	// FileBytes is the maximum size of a file.
	FileBytes int64
	// Files is the maximum number of files of one publish.
	Files int
	// Uploads is the maximum number of open uploads of an identity.
	Uploads int
	// Inspections is the maximum number of running inspections of an identity.
	Inspections int
	// AllInspections is the maximum number of running inspections of all identities,
	// in all processes that use the table. Those of small files do not count. If 0,
	// there is no maximum.
	AllInspections int
}

// DefaultPublishLimits are the limits that apply by default.
//
// A new AWS account runs ten functions at once. With these limits and
// [DefaultCopies], four are left for the functions that clients read from.
var DefaultPublishLimits = PublishLimits{
	FileBytes: 1 << 30, Files: 100, Uploads: 10, Inspections: 2, AllInspections: 4,
}

// The bounds of [PublishLimits]. S3 accepts no larger file in one request.
var (
	MinPublishLimits = PublishLimits{FileBytes: 1 << 20, Files: 1, Uploads: 1, Inspections: 1, AllInspections: 1}
	MaxPublishLimits = PublishLimits{
		FileBytes: 5 << 30, Files: 500, Uploads: 100, Inspections: 100, AllInspections: 1000,
	}
)

// PublishLimitsFromEnvironment reads limits through getenv, which is
// [os.Getenv]. A limit that is not set has its default. The error names every
// invalid variable.
func PublishLimitsFromEnvironment(getenv func(string) string) (PublishLimits, error) {
	var errs []error
	read := func(name string, fallback, low, high int64) int64 {
		value := getenv(name)
		if value == "" {
			return fallback
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < low || n > high || strconv.FormatInt(n, 10) != value {
			errs = append(errs, fmt.Errorf("%s is %q, not a number from %d to %d", name, value, low, high))
		}
		return n
	}
	readInt := func(name string, fallback, low, high int) int {
		return int(read(name, int64(fallback), int64(low), int64(high)))
	}
	standard, low, high := DefaultPublishLimits, MinPublishLimits, MaxPublishLimits
	l := PublishLimits{
		FileBytes:   read(publishFileBytes, standard.FileBytes, low.FileBytes, high.FileBytes),
		Files:       readInt(publishFiles, standard.Files, low.Files, high.Files),
		Uploads:     readInt(publishUploads, standard.Uploads, low.Uploads, high.Uploads),
		Inspections: readInt(publishInspections, standard.Inspections, low.Inspections, high.Inspections),
		AllInspections: readInt(allInspections, standard.AllInspections, low.AllInspections,
			high.AllInspections),
	}
	return l, errors.Join(errs...)
}

// Environment returns the variables from which [PublishLimitsFromEnvironment]
// reads the same limits.
func (l PublishLimits) Environment() map[string]string {
	return map[string]string{
		publishFileBytes:   strconv.FormatInt(l.FileBytes, 10),
		publishFiles:       strconv.Itoa(l.Files),
		publishUploads:     strconv.Itoa(l.Uploads),
		publishInspections: strconv.Itoa(l.Inspections),
		allInspections:     strconv.Itoa(l.AllInspections),
	}
}
