package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/files/jsonfile"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// Settings are the settings of a stack. Its owner writes them to settings.json;
// settings.schema.json describes the format.
type Settings struct {
	// StackName is the name of the CloudFormation stack.
	StackName string
	// NamesStack reports whether the file sets stackName.
	NamesStack bool
	// Access grants access in addition to the registry's own tokens. It is JSON
	// for access.ParseSettings.
	Access string
	// Warnings are for the person who deploys, about valid settings that may
	// surprise.
	Warnings []string
	// Cognito describes the user pool that the stack creates as another issuer,
	// for people to log in. If nil, the stack creates none.
	Cognito *Cognito
	// DomainName is the registry's host. Its certificate is in the stack's
	// region. Both are set, or none. If they are, the stack can create the host's
	// record in a hosted zone of Route 53, which needs the other two. Both names
	// have the form of [registry.Host].
	DomainName, CertificateARN, HostedZoneID, HostedZoneName string
	// IPv6 gives the gateway IPv6 addresses, and the URLs of archives a host that
	// has them.
	IPv6 bool
	// Architecture is the functions' processor: arm64 or x86_64.
	Architecture string
	// MemoryMiB is the memory of each function but publish, which has
	// PublishMemoryMiB.
	MemoryMiB, PublishMemoryMiB int
	// PresignLifetime is how long an archive URL is valid.
	PresignLifetime time.Duration
	// PublishLimits are the limits of publishing without AWS credentials.
	PublishLimits settings.PublishLimits
	// Copies is the maximum number of copies of the mirror at once.
	Copies int
	// PublishConcurrency is the number of instances that are reserved for the
	// publish function, which is also its maximum. If 0, none are reserved.
	PublishConcurrency int
	// PullConcurrency is the same for the function that fetches providers.
	PullConcurrency int
	// LogRetentionDays applies to all log groups.
	LogRetentionDays int
	// AccessLog makes the gateway log each request.
	AccessLog bool
	// ThrottleRate is the maximum number of requests per second of all clients to a
	// route of modules or of the mirror. ThrottleBurst is the maximum number at once.
	// Other routes have parts of these.
	ThrottleRate, ThrottleBurst int
	// SetsThrottle reports whether the file sets one of the two.
	SetsThrottle bool
	// MetricsNamespace is the CloudWatch namespace of the functions' metrics.
	// If empty, the functions write none.
	MetricsNamespace string
	// Alarms creates alarms. They notify AlarmTopicARN, or a topic that the
	// stack creates, to which AlarmEmail subscribes.
	Alarms                    bool
	AlarmTopicARN, AlarmEmail string
	// Dashboard creates a dashboard.
	Dashboard bool
	// Tags are the tags of all resources that can have some.
	Tags map[string]string
	// PermissionsBoundary is the ARN of a managed policy that bounds all roles. It
	// may be empty.
	PermissionsBoundary string
	// RolePath is the path of all roles and managed policies in IAM. If empty, it
	// is /.
	RolePath string
	// LogGroupPrefix begins the names of all log groups. If empty, CloudFormation
	// names those of the functions.
	LogGroupPrefix string
	// BootstrapQualifier is the qualifier of the CDK bootstrap that deploys the
	// stack. If empty, it is the CDK's own.
	BootstrapQualifier string
	// KMSKeyARN is the ARN of a KMS key that encrypts all stored data. If empty,
	// keys of AWS do.
	KMSKeyARN string
	// TableName and BucketName are an existing table and bucket for the stack
	// to adopt, such as restored ones. If empty, the stack creates new ones.
	TableName, BucketName string
	// ReadOnly makes the stack serve the table and the bucket that it adopts, and
	// write nothing but sessions. It refuses to publish, and fetches no providers.
	ReadOnly bool
}

var (
	// writtenDomain matches a host as people write it, and domainPattern in ASCII.
	writtenDomain  = regexp.MustCompile(`^[^\s/:@]+\.[^\s/:@]+$`)
	domainPattern  = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$`)
	certificateARN = regexp.MustCompile(`^arn:(` + anyPartition() + `):acm:[a-z0-9-]+:\d{12}:certificate/[A-Za-z0-9-]+$`)
	topicARN       = regexp.MustCompile(`^arn:(` + anyPartition() + `):sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}$`)
	emailPattern   = regexp.MustCompile(`^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@` +
		`([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`)
	boundaryARN = regexp.MustCompile(`^arn:(` + anyPartition() + `):iam::(\d{12}|aws):` +
		`policy/[A-Za-z0-9+=,.@_/-]{1,640}$`)
	keyARN           = regexp.MustCompile(`^arn:(` + anyPartition() + `):kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]{1,64}$`)
	pathPattern      = regexp.MustCompile(`^/([A-Za-z0-9+=,.@_-]{1,64}/){0,7}$`)
	logsPattern      = regexp.MustCompile(`^[A-Za-z0-9_.#/-]{1,64}$`)
	qualifierPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,10}$`)
	tagPattern       = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+@-]+$`)
	zonePattern      = regexp.MustCompile(`^(/hostedzone/)?Z[A-Z0-9]{1,31}$`)
	stackPattern     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,127}$`)
	tablePattern     = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
	bucketPattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	retentionPeriod  = []any{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192,
		2557, 2922, 3288, 3653}
)

func anyPartition() string {
	var ids []string
	for _, p := range partition.All() {
		ids = append(ids, p.ID)
	}
	return strings.Join(ids, "|")
}

// given has the settings in the form of the file.
type given struct {
	Settings
	schema                            string
	access                            access.Settings
	anonymousRead                     bool
	presignMinutes, publishMaxFileMiB int
	metrics                           *bool
}

// setting describes one key of the file.
type setting struct {
	key string
	// into points to the variable for the value. It has the default.
	into  any
	about string
	// A string must match pattern, which want describes. A number is between low
	// and high. oneOf lists all valid values, if they are few.
	pattern   *regexp.Regexp
	want      string
	low, high int
	oneOf     []any
}

const mib = 1 << 20

// defaultSettings returns the settings of an empty file.
func defaultSettings() *given {
	limits := settings.DefaultPublishLimits
	return &given{
		Settings: Settings{
			StackName: "larder", Architecture: "arm64", MemoryMiB: 256, PublishMemoryMiB: 512, PublishLimits: limits,
			Copies:           settings.DefaultCopies,
			LogRetentionDays: 30, AccessLog: true, ThrottleRate: 150, ThrottleBurst: 1008,
		},
		presignMinutes: 60, publishMaxFileMiB: int(limits.FileBytes / mib),
	}
}

func (g *given) keys() []setting {
	low, high := settings.MinPublishLimits, settings.MaxPublishLimits
	text := func(key string, into *string, pattern *regexp.Regexp, want, about string) setting {
		return setting{key: key, into: into, pattern: pattern, want: want, about: about}
	}
	number := func(key string, into *int, low, high int, about string) setting {
		return setting{key: key, into: into, low: low, high: high, about: about}
	}
	return []setting{
		text("stackName", &g.StackName, stackPattern, "a letter, followed by letters, digits and hyphens",
			"Name of the CloudFormation stack."),
		text("domainName", &g.DomainName, writtenDomain, "a host name, such as registry.example.com",
			"The registry's host. It needs certificateArn too. It costs nothing."),
		text("certificateArn", &g.CertificateARN, certificateARN,
			"the ARN of an ACM certificate in the stack's region",
			"The ARN of the domain's certificate, in the stack's region."),
		text("hostedZoneId", &g.HostedZoneID, zonePattern,
			"the id of a Route 53 hosted zone, such as Z0123456789ABCDEFGHIJ",
			"The id of the hosted zone in Route 53 in which the stack creates the domain's record. Without it, you create "+
				"the record. A zone costs $0.50 a month."),
		text("hostedZoneName", &g.HostedZoneName, writtenDomain,
			"the name of the hosted zone, such as example.com", "The name of the hosted zone. It needs hostedZoneId too."),
		{key: "ipv6", into: &g.IPv6,
			about: "The registry and the URLs of archives have IPv6 addresses too. It costs nothing."},
		{key: "access", into: &g.access,
			about: "Read and publish access, in addition to the registry's own tokens."},
		{key: "anonymousRead", into: &g.anonymousRead,
			about: "Anyone who can reach the registry may read everything."},
		{key: "cognito", into: &g.Cognito, about: "A Cognito user pool that the stack creates, for people to log in."},
		{key: "architecture", into: &g.Architecture, oneOf: []any{"arm64", "x86_64"},
			about: "The functions' processor."},
		number("memory", &g.MemoryMiB, 128, 10240, "Memory of each function, in MiB."),
		number("publishMemory", &g.PublishMemoryMiB, 128, 10240, "Memory of the publish function, in MiB."),
		number("publishMaxFileMiB", &g.publishMaxFileMiB, int(low.FileBytes/mib), int(high.FileBytes/mib),
			"Largest file of a publish through the registry, in MiB."),
		number("publishMaxFiles", &g.PublishLimits.Files, low.Files, high.Files,
			"The maximum number of files of a publish through the registry."),
		number("publishMaxUploads", &g.PublishLimits.Uploads, low.Uploads, high.Uploads,
			"The maximum number of unfinished publishes of one identity."),
		number("publishMaxInspections", &g.PublishLimits.Inspections, low.Inspections, high.Inspections,
			"The maximum number of inspections of one identity that run at once."),
		number("inspections", &g.PublishLimits.AllInspections, low.AllInspections, high.AllInspections,
			"The maximum number of inspections of all identities that run at once."),
		number("copies", &g.Copies, settings.MinCopies, settings.MaxCopies,
			"The maximum number of copies of the mirror that run at once."),
		number("publishConcurrency", &g.PublishConcurrency, 1, 1000,
			"The number of instances to reserve for the publish function. It is also the maximum."),
		number("pullConcurrency", &g.PullConcurrency, 1, 1000,
			"The number of instances to reserve for the pull function, which fetches providers. It is also the maximum."),
		number("presignMinutes", &g.presignMinutes, int(settings.MinPresignLifetime.Minutes()),
			int(settings.MaxPresignLifetime.Minutes()), "How long the URL of an archive is valid, in minutes."),
		{key: "logRetentionDays", into: &g.LogRetentionDays, oneOf: retentionPeriod,
			about: "How many days CloudWatch Logs stores logs."},
		{key: "accessLog", into: &g.AccessLog, about: "The gateway logs each request."},
		number("throttleRate", &g.ThrottleRate, 1, 10_000, "Requests per second of all clients to each route of "+
			"modules and to the mirror. Other routes have parts of that."),
		number("throttleBurst", &g.ThrottleBurst, 1, 5_000, "Requests at once of all clients to each route of "+
			"modules and to the mirror. Other routes have parts of that."),
		{key: "metrics", into: &g.metrics, about: "Whether the functions write metrics to CloudWatch."},
		{key: "alarms", into: &g.Alarms, about: "Creates alarms. The functions then write metrics."},
		text("alarmTopicArn", &g.AlarmTopicARN, topicARN,
			"the ARN of an SNS topic in the stack's region (not a FIFO topic)",
			"The ARN of your own SNS topic for alarms."),
		text("alarmEmail", &g.AlarmEmail, emailPattern, "an email address, such as registry@example.com",
			"An email address for alarms."),
		{key: "dashboard", into: &g.Dashboard, about: "Creates a dashboard. The functions then write metrics."},
		{key: "tags", into: &g.Tags, about: "Tags of all resources that can have some. They cost nothing."},
		text("permissionsBoundary", &g.PermissionsBoundary, boundaryARN,
			"the ARN of a managed policy, such as arn:aws:iam::111122223333:policy/boundary",
			"The ARN of a policy that bounds all roles. It costs nothing."),
		text("rolePath", &g.RolePath, pathPattern, "a path that begins and ends with /, such as /platform/",
			"The path of all roles and policies in IAM. It costs nothing."),
		text("logGroupPrefix", &g.LogGroupPrefix, logsPattern,
			"the beginning of a log group's name, such as /platform/",
			"The beginning of the names of all log groups. It costs nothing."),
		text("bootstrapQualifier", &g.BootstrapQualifier, qualifierPattern,
			"the qualifier of a CDK bootstrap, of at most 10 letters, digits, hyphens and underscores",
			"The qualifier of the CDK bootstrap that deploys the stack. It costs nothing."),
		text("kmsKeyArn", &g.KMSKeyARN, keyARN,
			"the ARN of a KMS key, as aws kms describe-key prints it, such as "+
				"arn:aws:kms:eu-central-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef",
			"The ARN of your KMS key for the table, the bucket, logs, alarms and failures. A key costs $1 a month, and "+
				"requests to KMS $3 per million."),
		text("tableName", &g.TableName, tablePattern, "a name that a DynamoDB table can have",
			"An existing DynamoDB table to use instead of a new one."),
		text("bucketName", &g.BucketName, bucketPattern, "a name that an S3 bucket can have",
			"An existing S3 bucket to use instead of a new one."),
		{key: "readOnly", into: &g.ReadOnly,
			about: "The stack only reads its table and its bucket, which are copies of another stack's."},
		{key: "$schema", into: &g.schema, about: "The schema with which an editor validates this file."},
	}
}

func parseFile(name string, text []byte) (*jsonfile.File, error) {
	text, err := textfile.Decode(name, text)
	if err != nil {
		return nil, err
	}
	file, err := jsonfile.Parse(name, text)
	if err != nil {
		return nil, unreadable(err)
	}
	return file, nil
}

func unreadable(err error) error { return fmt.Errorf("cannot read the settings: %w", err) }

// parseSettings reads settings from a file, which may be nil. Its error is one
// line with the position in the file. region is the stack's region, or empty if
// it is unknown.
func parseSettings(file *jsonfile.File, region string) (Settings, error) {
	g := defaultSettings()
	if file == nil {
		file = &jsonfile.File{}
	}
	p := parser{values: make(map[string]jsonfile.Value)}
	all := make(map[string]setting)
	for _, s := range g.keys() {
		all[s.key] = s
	}
	for _, m := range file.Object.Members {
		s, ok := all[m.Key]
		if !ok {
			text := jsonfile.Unknown("setting", m.Key, slices.Sorted(maps.Keys(all)))
			p.faults = append(p.faults, jsonfile.Fault{Offset: m.Offset, Text: text})
			continue
		}
		if _, twice := p.values[m.Key]; twice {
			p.faults = append(p.faults, jsonfile.Fault{Offset: m.Offset, Text: m.Key + " is set twice"})
			continue
		}
		p.values[m.Key] = m.Value
		if f := m.Value.Fill(m.Key, s.into); f != nil {
			if s.high > 0 {
				f.Text = fmt.Sprintf("%s: %s is not a whole number from %d to %d", m.Key, m.Value.Shown(),
					s.low, s.high)
			}
			p.faults = append(p.faults, *f)
			continue
		}
		p.check(s, m.Value)
	}
	_, g.NamesStack = p.values["stackName"]
	_, setsRate := p.values["throttleRate"]
	_, setsBurst := p.values["throttleBurst"]
	g.SetsThrottle = setsRate || setsBurst
	if len(p.faults) == 0 {
		p.together(g, region)
	}
	if len(p.faults) > 0 {
		first := slices.MinFunc(p.faults, func(a, b jsonfile.Fault) int { return a.Offset - b.Offset })
		return Settings{}, unreadable(file.Error(first)) // one fault at a time, on one line
	}
	return g.Settings, nil
}

// together completes the settings, and checks those that depend on each other.
func (p *parser) together(g *given, region string) {
	s := &g.Settings
	s.PresignLifetime = time.Duration(g.presignMinutes) * time.Minute
	s.PublishLimits.FileBytes = int64(g.publishMaxFileMiB) * mib
	// Route 53's own commands print zones in these forms.
	s.HostedZoneID = strings.TrimPrefix(s.HostedZoneID, "/hostedzone/")
	p.access(g)
	p.monitoring(g, region)
	if s.ReadOnly && (s.TableName == "" || s.BucketName == "") {
		p.fail("readOnly", "a read-only copy needs tableName and bucketName")
	}
	p.tags(s)
	p.elsewhere("kmsKeyArn", "key", s.KMSKeyARN, region)
	if strings.HasPrefix(s.LogGroupPrefix, "aws/") {
		p.fail("logGroupPrefix", "%q begins with aws/, which only AWS may use", s.LogGroupPrefix)
	}
	zone := s.HostedZoneID + s.HostedZoneName
	for _, needed := range []struct{ key, value, with, why string }{
		{"certificateArn", s.CertificateARN, s.DomainName + zone, "a domain needs domainName and certificateArn together"},
		{"domainName", s.DomainName, s.CertificateARN + zone, "a domain needs domainName and certificateArn together"},
		{"hostedZoneId", s.HostedZoneID, zone, "a hosted zone needs hostedZoneId and hostedZoneName together"},
		{"hostedZoneName", s.HostedZoneName, zone, "a hosted zone needs hostedZoneId and hostedZoneName together"},
	} {
		if needed.value == "" && needed.with != "" {
			p.fail(needed.key, "missing: %s", needed.why)
			return
		}
	}
	p.elsewhere("certificateArn", "certificate", s.CertificateARN, region)
	if s.HostedZoneName != "" && s.DomainName != s.HostedZoneName && !strings.HasSuffix(s.DomainName,
		"."+s.HostedZoneName) {
		p.fail("hostedZoneName", "%s is not within the zone %s", s.DomainName, s.HostedZoneName)
	}
}

// elsewhere checks that what an ARN names is in the stack's region.
func (p *parser) elsewhere(key, what, arn, region string) {
	if parts := strings.Split(arn, ":"); region != "" && len(parts) > 3 && parts[3] != region {
		p.fail(key, "the %s is in %s, but the stack is in %s", what, parts[3], region)
	}
}

// The limits of tags. AWS adds its own tags to the most that a resource can have.
//
// Source: https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html.
const (
	maxTags     = 40
	maxTagKey   = 128
	maxTagValue = 256
)

// tags checks the tags. IAM refuses two keys that differ only in case.
func (p *parser) tags(s *Settings) {
	if len(s.Tags) > maxTags {
		p.fail("tags", "there are %d, and at most %d are possible", len(s.Tags), maxTags)
	}
	seen := make(map[string]string)
	for _, key := range slices.Sorted(maps.Keys(s.Tags)) {
		value, path := s.Tags[key], []any{key}
		lower := strings.ToLower(key)
		switch {
		case utf8.RuneCountInString(key) > maxTagKey || !tagPattern.MatchString(key):
			p.failAt("tags", path, "%q is not a key of 1 to %d letters, digits, spaces and _.:/=+-@", key, maxTagKey)
		case strings.HasPrefix(lower, "aws:"):
			p.failAt("tags", path, "%q begins with aws:, which only AWS may use", key)
		case seen[lower] != "":
			p.failAt("tags", path, "%q and %q differ only in case, which IAM refuses", seen[lower], key)
		case utf8.RuneCountInString(value) > maxTagValue || !tagPattern.MatchString(value):
			p.failAt("tags", path, "the value %q of %s is not 1 to %d letters, digits, spaces and _.:/=+-@",
				value, key, maxTagValue)
		}
		seen[lower] = key
	}
}

// parser collects the faults of a file.
type parser struct {
	values map[string]jsonfile.Value // of the file, by key
	faults []jsonfile.Fault
}

func (p *parser) fail(key, format string, args ...any) {
	p.failAt(key, nil, format, args...)
}

// failAt adds a fault at the place that a path inside a key's value leads to.
func (p *parser) failAt(key string, path []any, format string, args ...any) {
	p.faults = append(p.faults, jsonfile.Fault{
		Offset: p.values[key].Find(path...).Offset, Text: key + ": " + fmt.Sprintf(format, args...),
	})
}

func (p *parser) check(s setting, v jsonfile.Value) {
	switch into := s.into.(type) {
	case *string:
		if s.pattern != nil && !s.pattern.MatchString(*into) {
			p.fail(s.key, "%q is not %s", *into, s.want)
		} else if s.pattern == writtenDomain {
			host, err := registry.ParseHost(*into)
			if err != nil || !domainPattern.MatchString(string(host)) {
				p.fail(s.key, "%q is not %s", *into, s.want)
			}
			*into = string(host) // the form of certificates and of Route 53
		}
		if s.oneOf != nil && !slices.Contains(s.oneOf, any(*into)) {
			p.fail(s.key, "%q is not %s", *into, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.oneOf), " ",
				" or "), "[]"))
		}
	case *int:
		if s.oneOf != nil && !slices.Contains(s.oneOf, any(*into)) {
			p.fail(s.key, "%d is not one of the retention periods of CloudWatch Logs: %v", *into, s.oneOf)
		}
		if s.oneOf == nil && (*into < s.low || *into > s.high) {
			p.fail(s.key, "%s is not a whole number from %d to %d", v.Raw, s.low, s.high)
		}
	}
}

// Cognito describes a user pool that the stack creates.
type Cognito struct {
	// DomainPrefix is the first label of the sign-in page's host name. It must
	// be unique in the region.
	DomainPrefix string `json:"domainPrefix"`
	// Rules map the claims of the pool's tokens, such as cognito:groups, to
	// scopes.
	Rules []access.Rule `json:"rules"`
}

// check returns an error if the rules are not valid for an issuer.
func (c *Cognito) check() error {
	pool := access.Settings{Issuers: []access.Issuer{{Issuer: "https://cognito.example.com",
		ClientIDs: []string{"client"}, Rules: c.Rules}}}
	return pool.Complete()
}

var reserved = regexp.MustCompile(`aws|amazon|cognito`)

var prefixPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (p *parser) access(g *given) {
	parsed := g.access
	if err := parsed.Complete(); err != nil {
		var path []any
		if field, ok := errors.AsType[*access.FieldError](err); ok {
			path = field.Path
		}
		p.failAt("access", path, "%v", err)
		return
	}
	if l := parsed.Login; l != nil && l.Web != nil && l.Web.SecretFile != "" {
		p.failAt("access", []any{"login", "web", "secretFile"},
			"login: web: functions cannot read files: put the secret into an SSM parameter, "+
				"and its name into secretParameter")
		return
	}
	s := &g.Settings
	for _, warning := range parsed.Warnings() {
		s.Warnings = append(s.Warnings, "access: "+warning)
	}
	if g.anonymousRead {
		if len(parsed.Issuers) > 0 {
			p.fail("anonymousRead", "everyone could read everything, but access restricts reading to the tokens of its issuers: "+
				"remove one of the two settings")
		}
		parsed.Public = append(parsed.Public, access.Pattern{"**"})
	}
	if c := s.Cognito; c != nil {
		switch {
		case !prefixPattern.MatchString(c.DomainPrefix) || reserved.MatchString(c.DomainPrefix):
			p.fail("cognito",
				"domainPrefix %q: use lower-case letters, digits and hyphens; AWS rejects the words "+
					"aws, amazon and cognito in it", c.DomainPrefix)
		case c.check() != nil:
			p.fail("cognito", "rules: %v", c.check())
		case parsed.Login != nil:
			p.fail("cognito", "people log in with the user pool, but access also has a login: remove one of them")
		}
	}
	compact, err := json.Marshal(parsed)
	if err != nil {
		p.fail("access", "%v", err)
	}
	// Lambda's limit is 4 KB for all variables of a function together.
	size := len(compact)
	if s.Cognito != nil {
		rules, err := json.Marshal(s.Cognito.Rules)
		if err != nil {
			p.fail("cognito", "%v", err)
		}
		size += len(rules) + cognitoRest
	}
	if size > maxAccess {
		p.fail("access",
			"together with cognito it has %d bytes as compact JSON, and functions can receive at most %d: "+
				"use patterns with * to have fewer rules", size, maxAccess)
	}
	s.Access = string(compact)
}

// monitoring completes the settings of metrics, alarms and the dashboard. Alarms
// and the dashboard need metrics.
func (p *parser) monitoring(g *given, region string) {
	s := &g.Settings
	counts := g.metrics != nil && *g.metrics
	switch {
	case g.metrics != nil && !counts && (s.Alarms || s.Dashboard):
		p.fail("metrics", "alarms and the dashboard need metrics: remove it")
	case counts || s.Alarms || s.Dashboard:
		s.MetricsNamespace = "Larder/" + s.StackName
	}
	if s.Alarms && !s.AccessLog {
		s.Warnings = append(s.Warnings,
			"alarms: without the access log, no alarm detects requests that the throttle rejects with 429")
	}
	for key, value := range map[string]string{"alarmTopicArn": s.AlarmTopicARN, "alarmEmail": s.AlarmEmail} {
		if value != "" && !s.Alarms {
			p.fail(key, "there are no alarms to send: set alarms too, or remove it")
		}
	}
	if s.AlarmTopicARN != "" && s.AlarmEmail != "" {
		p.fail("alarmEmail",
			"the stack does not add subscriptions to your own topic: subscribe the address there, or remove alarmTopicArn")
	}
	p.elsewhere("alarmTopicArn", "topic", s.AlarmTopicARN, region)
}

const (
	maxAccess = 3000
	// cognitoRest is the size of a user pool's access settings without its
	// rules.
	cognitoRest = 450
)
