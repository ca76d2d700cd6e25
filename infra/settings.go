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

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/jsonfile"
	"github.com/larder-registry/larder/pkg/settings"
)

// Settings of the stack. They are in a file that its owner keeps, settings.json,
// whose form settings.schema.json has.
type Settings struct {
	// StackName is the name of the CloudFormation stack. NamesStack reports whether
	// the file has it.
	StackName  string
	NamesStack bool
	// Access is who may read besides the holders of tokens, as JSON that
	// access.ParseSettings reads.
	Access string
	// Warnings are lines for whoever deploys, about settings that are valid.
	Warnings []string
	// Cognito makes a user pool, as one more issuer by which people log in; nil makes none.
	Cognito *Cognito
	// DomainName is the registry's host, with its certificate in the stack's region
	// and its hosted zone. All four or none.
	DomainName, CertificateARN, HostedZoneID, HostedZoneName string
	// Architecture of the functions: arm64 or x86_64.
	Architecture string
	// MemoryMiB of each function but the one that publishes, which has PublishMemoryMiB.
	MemoryMiB, PublishMemoryMiB int
	// PresignLifetime of archive URLs.
	PresignLifetime time.Duration
	// PublishLimits are those of publishing without AWS credentials.
	PublishLimits settings.PublishLimits
	// PublishConcurrency reserves so many instances of the function that
	// publishes, which then has no more; 0 reserves none.
	PublishConcurrency int
	// LogRetentionDays of all log groups.
	LogRetentionDays int
	// AccessLog has the gateway log each request.
	AccessLog bool
	// ThrottleRate and ThrottleBurst bound the requests of all clients together, per
	// second and at once.
	ThrottleRate, ThrottleBurst int
	// MetricsNamespace is where in CloudWatch the functions count requests. They do
	// not count if it is empty.
	MetricsNamespace string
	// Alarms makes alarms that go to AlarmTopicARN, or to a topic of the stack, to
	// which AlarmEmail subscribes.
	Alarms                    bool
	AlarmTopicARN, AlarmEmail string
	// Dashboard makes a dashboard.
	Dashboard bool
	// TableName and BucketName adopt a table and a bucket that exist, such as
	// restored ones. If they are empty, the stack makes new ones.
	TableName, BucketName string
}

var (
	domainPattern  = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]\.?$`)
	certificateARN = regexp.MustCompile(`^arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[A-Za-z0-9-]+$`)
	topicARN       = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}$`)
	emailPattern   = regexp.MustCompile(`^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@` +
		`([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`)
	zonePattern     = regexp.MustCompile(`^(/hostedzone/)?Z[A-Z0-9]{1,31}$`)
	stackPattern    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,127}$`)
	tablePattern    = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
	bucketPattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	retentionPeriod = []any{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192,
		2557, 2922, 3288, 3653}
)

// given is the settings as the file has them.
type given struct {
	Settings
	schema                            string
	access                            access.Settings
	anonymousRead                     bool
	presignMinutes, publishMaxFileMiB int
	metrics                           *bool
}

// setting is one key of the file.
type setting struct {
	key string
	// into points to what it sets, which has the default.
	into  any
	about string
	// pattern is of a text, and want says it in words. low and high bound a
	// number. oneOf are all values that there are, if they are few.
	pattern   *regexp.Regexp
	want      string
	low, high int
	oneOf     []any
}

const mib = 1 << 20

// defaultSettings are those of a file that is missing.
func defaultSettings() *given {
	limits := settings.DefaultPublishLimits
	return &given{
		Settings: Settings{
			StackName: "larder", Architecture: "arm64", MemoryMiB: 256, PublishMemoryMiB: 512, PublishLimits: limits,
			LogRetentionDays: 30, AccessLog: true, ThrottleRate: 100, ThrottleBurst: 200,
		},
		presignMinutes: 60, publishMaxFileMiB: int(limits.FileBytes / mib),
	}
}

// keys are all settings that there are.
func (g *given) keys() []setting {
	low, high := settings.MinPublishLimits, settings.MaxPublishLimits
	text := func(key string, into *string, pattern *regexp.Regexp, want, about string) setting {
		return setting{key: key, into: into, pattern: pattern, want: want, about: about}
	}
	number := func(key string, into *int, low, high int, about string) setting {
		return setting{key: key, into: into, low: low, high: high, about: about}
	}
	return []setting{
		text("stackName", &g.StackName, stackPattern, "a letter, and letters, digits and hyphens behind it",
			"Name of the CloudFormation stack."),
		text("domainName", &g.DomainName, domainPattern,
			"a host name in lower case, such as registry.example.com",
			"The registry's host. It needs certificateArn, hostedZoneId and hostedZoneName too."),
		text("certificateArn", &g.CertificateARN, certificateARN,
			"the ARN of an ACM certificate in the stack's region",
			"The ARN of the domain's certificate, in the stack's region."),
		text("hostedZoneId", &g.HostedZoneID, zonePattern,
			"the id of a Route 53 hosted zone, such as Z0123456789ABCDEFGHIJ",
			"The id of the domain's hosted zone in Route 53."),
		text("hostedZoneName", &g.HostedZoneName, domainPattern,
			"the name of the hosted zone, such as example.com", "The name of the domain's hosted zone."),
		{key: "access", into: &g.access,
			about: "Who may read and publish, besides the holders of the registry's own tokens."},
		{key: "anonymousRead", into: &g.anonymousRead,
			about: "Everybody who reaches the registry may read everything."},
		{key: "cognito", into: &g.Cognito, about: "A Cognito user pool that the stack makes, for people to log in."},
		{key: "architecture", into: &g.Architecture, oneOf: []any{"arm64", "x86_64"},
			about: "The functions' processor."},
		number("memory", &g.MemoryMiB, 128, 10240, "Memory of each function, in MiB."),
		number("publishMemory", &g.PublishMemoryMiB, 128, 10240, "Memory of the publish function, in MiB."),
		number("publishMaxFileMiB", &g.publishMaxFileMiB, int(low.FileBytes/mib), int(high.FileBytes/mib),
			"Largest file of a publish through the registry, in MiB."),
		number("publishMaxFiles", &g.PublishLimits.Files, low.Files, high.Files,
			"How many files a publish through the registry may have."),
		number("publishMaxUploads", &g.PublishLimits.Uploads, low.Uploads, high.Uploads,
			"How many publishes an identity may have under way."),
		number("publishMaxInspections", &g.PublishLimits.Inspections, low.Inspections, high.Inspections,
			"How many inspections of an identity run at once."),
		number("publishConcurrency", &g.PublishConcurrency, 1, 1000,
			"Reserves this number of instances for the publish function, which then has no more."),
		number("presignMinutes", &g.presignMinutes, int(settings.MinPresignLifetime.Minutes()),
			int(settings.MaxPresignLifetime.Minutes()), "How long the URL of an archive is valid, in minutes."),
		{key: "logRetentionDays", into: &g.LogRetentionDays, oneOf: retentionPeriod,
			about: "How many days CloudWatch Logs keeps logs."},
		{key: "accessLog", into: &g.AccessLog, about: "The gateway logs each request."},
		number("throttleRate", &g.ThrottleRate, 1, 10_000, "Requests per second of all clients together."),
		number("throttleBurst", &g.ThrottleBurst, 1, 5_000, "Requests at once of all clients together."),
		{key: "metrics", into: &g.metrics, about: "The functions count requests in CloudWatch."},
		{key: "alarms", into: &g.Alarms, about: "Makes alarms, and with them metrics."},
		text("alarmTopicArn", &g.AlarmTopicARN, topicARN,
			"the ARN of an SNS topic in the stack's region, and no FIFO one",
			"The ARN of your own SNS topic for alarms."),
		text("alarmEmail", &g.AlarmEmail, emailPattern, "an address of mail, such as registry@example.com",
			"An email address for alarms."),
		{key: "dashboard", into: &g.Dashboard, about: "Makes a dashboard, and with it metrics."},
		text("tableName", &g.TableName, tablePattern, "a name that a DynamoDB table can have",
			"A DynamoDB table that exists, to use in place of a new one."),
		text("bucketName", &g.BucketName, bucketPattern, "a name that an S3 bucket can have",
			"An S3 bucket that exists, to use in place of a new one."),
		{key: "$schema", into: &g.schema, about: "The schema by which an editor checks this file."},
	}
}

// parseFile reads the text of a file.
func parseFile(name string, text []byte) (*jsonfile.File, error) {
	file, err := jsonfile.Parse(name, text)
	if err != nil {
		return nil, unreadable(err)
	}
	return file, nil
}

func unreadable(err error) error { return fmt.Errorf("cannot read the settings: %w", err) }

// parseSettings reads settings from a file; nil is a file that is missing. Its
// error is one line with the place in the file. region is where the stack goes,
// or empty if that is not known.
func parseSettings(file *jsonfile.File, region string) (Settings, error) {
	g := defaultSettings()
	if file == nil {
		file = &jsonfile.File{}
	}
	p := parser{values: make(map[string]jsonfile.Value)}
	known := make(map[string]setting)
	for _, s := range g.keys() {
		known[s.key] = s
	}
	for _, m := range file.Object.Members {
		s, ok := known[m.Key]
		if !ok {
			text := jsonfile.Unknown("setting", m.Key, slices.Sorted(maps.Keys(known)))
			p.faults = append(p.faults, jsonfile.Fault{Offset: m.Offset, Text: text})
			continue
		}
		if _, twice := p.values[m.Key]; twice {
			p.faults = append(p.faults, jsonfile.Fault{Offset: m.Offset, Text: m.Key + " is there twice"})
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
	if len(p.faults) == 0 {
		p.together(g, region)
	}
	if len(p.faults) > 0 {
		first := slices.MinFunc(p.faults, func(a, b jsonfile.Fault) int { return a.Offset - b.Offset })
		return Settings{}, unreadable(file.Error(first)) // one clear line; the next try shows the next
	}
	return g.Settings, nil
}

// together completes the settings, and checks those that depend on each other.
func (p *parser) together(g *given, region string) {
	s := &g.Settings
	s.PresignLifetime = time.Duration(g.presignMinutes) * time.Minute
	s.PublishLimits.FileBytes = int64(g.publishMaxFileMiB) * mib
	// The forms in which Route 53's own commands print zones.
	s.HostedZoneID = strings.TrimPrefix(s.HostedZoneID, "/hostedzone/")
	s.DomainName, s.HostedZoneName = strings.TrimSuffix(s.DomainName, "."), strings.TrimSuffix(s.HostedZoneName, ".")
	p.access(g)
	p.signals(g, region)
	domain := map[string]string{"domainName": s.DomainName, "certificateArn": s.CertificateARN,
		"hostedZoneId": s.HostedZoneID, "hostedZoneName": s.HostedZoneName}
	for _, key := range slices.Sorted(maps.Keys(domain)) {
		if domain[key] == "" && s.DomainName+s.CertificateARN+s.HostedZoneID+s.HostedZoneName != "" {
			p.fail(key, "it is missing: a domain needs domainName, certificateArn, hostedZoneId and "+
				"hostedZoneName together")
			return
		}
	}
	if arn := strings.Split(s.CertificateARN, ":"); region != "" && len(arn) > 3 && arn[3] != region {
		p.fail("certificateArn", "the certificate is in %s, and the stack goes to %s", arn[3], region)
	}
	if s.HostedZoneName != "" && s.DomainName != s.HostedZoneName && !strings.HasSuffix(s.DomainName,
		"."+s.HostedZoneName) {
		p.fail("hostedZoneName", "%s is not within the zone %s", s.DomainName, s.HostedZoneName)
	}
}

// parser collects the faults of a file.
type parser struct {
	values map[string]jsonfile.Value // that the file has
	faults []jsonfile.Fault
}

func (p *parser) fail(key, format string, args ...any) {
	p.failAt(key, nil, format, args...)
}

// failAt adds a fault at the place in the value of a key to which a path leads.
func (p *parser) failAt(key string, path []any, format string, args ...any) {
	p.faults = append(p.faults, jsonfile.Fault{
		Offset: p.values[key].Find(path...).Offset, Text: key + ": " + fmt.Sprintf(format, args...),
	})
}

// check checks the value of a setting.
func (p *parser) check(s setting, v jsonfile.Value) {
	switch into := s.into.(type) {
	case *string:
		if s.pattern != nil && !s.pattern.MatchString(*into) {
			p.fail(s.key, "%q is not %s", *into, s.want)
		}
		if s.oneOf != nil && !slices.Contains(s.oneOf, any(*into)) {
			p.fail(s.key, "%q is not %s", *into, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.oneOf), " ",
				" or "), "[]"))
		}
	case *int:
		if s.oneOf != nil && !slices.Contains(s.oneOf, any(*into)) {
			p.fail(s.key, "%d is not among what CloudWatch Logs takes: %v", *into, s.oneOf)
		}
		if s.oneOf == nil && (*into < s.low || *into > s.high) {
			p.fail(s.key, "%s is not a whole number from %d to %d", v.Raw, s.low, s.high)
		}
	}
}

// Cognito is a user pool that the stack makes.
type Cognito struct {
	// DomainPrefix is the first part of the sign-in page's host name. It is unique
	// in the region.
	DomainPrefix string `json:"domainPrefix"`
	// Rules turn the claims of the pool's tokens into scopes, such as those of cognito:groups.
	Rules []access.Rule `json:"rules"`
}

// check returns an error if the rules are invalid for an issuer.
func (c *Cognito) check() error {
	pool := access.Settings{Issuers: []access.Issuer{{Issuer: "https://cognito.example.com",
		ClientIDs: []string{"client"}, Rules: c.Rules}}}
	return pool.Complete()
}

var reserved = regexp.MustCompile(`aws|amazon|cognito`)

var prefixPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// access completes who may read.
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
	s := &g.Settings
	for _, warning := range parsed.Warnings() {
		s.Warnings = append(s.Warnings, "access: "+warning)
	}
	if g.anonymousRead {
		if len(parsed.Issuers) > 0 {
			p.fail("anonymousRead", "everything would be open, and access says who may read: take one of them out")
		}
		parsed.Public = append(parsed.Public, access.Pattern{"**"})
	}
	if c := s.Cognito; c != nil {
		switch {
		case !prefixPattern.MatchString(c.DomainPrefix) || reserved.MatchString(c.DomainPrefix):
			p.fail("cognito",
				"domainPrefix %q: it is small letters, digits and hyphens, and AWS refuses the words "+
					"aws, amazon and cognito in it", c.DomainPrefix)
		case c.check() != nil:
			p.fail("cognito", "rules: %v", c.check())
		case parsed.Login != nil:
			p.fail("cognito", "people log in by the user pool then, and access has a login too: take one of them out")
		}
	}
	compact, err := json.Marshal(parsed)
	if err != nil {
		p.fail("access", "%v", err)
	}
	// Lambda gives all variables of a function together 4 KB.
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
			"with cognito's it has %d bytes as compact JSON, and functions can be told %d: "+
				"patterns with * make rules fewer", size, maxAccess)
	}
	s.Access = string(compact)
}

// signals completes the settings of metrics, alarms and the dashboard. Alarms and
// the dashboard need metrics.
func (p *parser) signals(g *given, region string) {
	s := &g.Settings
	counts := g.metrics != nil && *g.metrics
	switch {
	case g.metrics != nil && !counts && (s.Alarms || s.Dashboard):
		p.fail("metrics", "alarms and the dashboard need what is counted: take it out")
	case counts || s.Alarms || s.Dashboard:
		s.MetricsNamespace = "Larder/" + s.StackName
	}
	if s.Alarms && !s.AccessLog {
		s.Warnings = append(s.Warnings,
			"alarms: without the access log, no alarm sees requests that the throttle refuses with 429")
	}
	for key, value := range map[string]string{"alarmTopicArn": s.AlarmTopicARN, "alarmEmail": s.AlarmEmail} {
		if value != "" && !s.Alarms {
			p.fail(key, "there are no alarms to send: say alarms too, or take it out")
		}
	}
	if s.AlarmTopicARN != "" && s.AlarmEmail != "" {
		p.fail("alarmEmail",
			"a topic of your own has subscriptions of your own: subscribe the address there, or take alarmTopicArn out")
	}
	if arn := strings.Split(s.AlarmTopicARN, ":"); region != "" && len(arn) > 3 && arn[3] != region {
		p.fail("alarmTopicArn", "the topic is in %s, and the stack goes to %s", arn[3], region)
	}
}

const (
	maxAccess = 3000
	// cognitoRest is what the stack adds for a user pool besides its rules.
	cognitoRest = 400
)
