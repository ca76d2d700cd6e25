package oddities

// The texts of the documentation that several reasons are.
const (
	weakKey      = "it is too weak for a key of a namespace"
	oddZip       = "a zip with gaps, overlapping files or another structure that programs read differently"
	specialFiles = "a zip with links, or with files that run as their owner"
	leadsOut     = "paths and links that lead out"
	noFiles      = "an archive of a module with hard links or devices"
	badName      = "a file other than configuration that has a name that Windows does not allow, or is a link to nothing"
	usualName    = "must be `terraform-provider-TYPE_VERSION_OS_ARCH.zip`"
	noPlatforms  = "origin that lists no platforms"
)

// reasons are those of the oddities about which clients and Larder differ.
var reasons = map[string]Reason{
	// Providers.
	"capitals-in-address":     {Documented: "an address with capital letters"},
	"empty-platforms":         {Documented: noPlatforms},
	"no-platforms":            {Documented: noPlatforms},
	"key-dsa":                 {Documented: weakKey},
	"key-rsa-1024":            {Documented: weakKey},
	"signature-expired":       {Documented: "an expired signature"},
	"zip-folder-entries":      {Documented: "Zips with folders as entries are refused"},
	"zip-link":                {Documented: specialFiles},
	"zip-set-uid":             {Documented: specialFiles},
	"zip-names-of-windows":    {Documented: oddZip},
	"zip-twice-the-same-name": {Documented: oddZip},
	"zip-with-prefix":         {Documented: oddZip},
	"zip-other-filename":      {Documented: usualName},
	"sums-bom":                {Documented: "SHA256SUMS that begins with a byte order mark"},

	// Modules.
	"archive-device":         {Documented: noFiles},
	"archive-hard-link":      {Documented: noFiles},
	"git":                    {Documented: "Clients cannot make the mirror fetch it"},
	"ignore-everything":      {Documented: "a `.terraformignore` that excludes all of it"},
	"link-absolute":          {Documented: leadsOut},
	"link-outside":           {Documented: leadsOut},
	"link-dangling-root":     {Documented: badName},
	"name-with-colon-tf":     {Documented: badName},
	"newer-action":           {Documented: "because later releases of a client may know it"},
	"only-readme":            {Documented: "a module without configuration at its root or below `modules/`"},
	"subfolder-calls-parent": {Documented: "is an error if it calls a path outside of that folder"},
	"version-four-parts":     {Documented: "A version that is not semantic, such as `1.2.3.4`, is skipped and listed"},
}
