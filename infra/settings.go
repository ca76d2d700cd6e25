package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/settings"
)

// Settings of the stack. Each is a key of CDK context: -c KEY=VALUE, or "context" in cdk.json.
type Settings struct {
	// StackName is the name of the CloudFormation stack.
	StackName string
	// Access says who may read besides the holders of tokens: JSON, as access.ParseSettings reads it.
	Access string
	// Warnings are lines for whoever deploys, about settings that are valid.
	Warnings []string
	// Cognito makes a user pool, as one more issuer by which people log in; nil makes none.
	Cognito *Cognito
	// DomainName is the registry's host, with its certificate in the stack's region and its hosted zone. All four or none.
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
	// ThrottleRate and ThrottleBurst bound the requests of all clients together, per second and at once.
	ThrottleRate, ThrottleBurst int
	// MetricsNamespace is where in CloudWatch the functions count requests. They do not where it is empty.
	MetricsNamespace string
	// Alarms makes alarms and a topic that they go to, or has them go to AlarmTopicARN. AlarmEmail subscribes to the stack's own.
	Alarms                    bool
	AlarmTopicARN, AlarmEmail string
	// Dashboard makes a dashboard.
	Dashboard bool
	// TableName and BucketName adopt a table and a bucket that exist, such as restored ones; empty ones are made.
	TableName, BucketName string
}

var (
	domainPattern   = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$`)
	certificateARN  = regexp.MustCompile(`^arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[A-Za-z0-9-]+$`)
	topicARN        = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}$`)
	emailPattern    = regexp.MustCompile(`^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`)
	zonePattern     = regexp.MustCompile(`^Z[A-Z0-9]{1,31}$`)
	stackPattern    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,127}$`)
	tablePattern    = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
	bucketPattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	retentionPeriod = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
)

// parseSettings reads settings from context. Its error is one line, and says what to do. region is where the stack goes,
// or empty where that is not known.
func parseSettings(context map[string]any, region string) (Settings, error) {
	p := parser{context: context, known: map[string]bool{}}
	const mib = 1 << 20
	standard, low, high := settings.DefaultPublishLimits, settings.MinPublishLimits, settings.MaxPublishLimits
	s := Settings{
		StackName:        p.text("stackName", "larder", stackPattern, "a letter, and letters, digits and hyphens behind it"),
		DomainName:       p.text("domainName", "", domainPattern, "a host name in lower case, such as registry.example.com"),
		CertificateARN:   p.text("certificateArn", "", certificateARN, "the ARN of an ACM certificate in the stack's region"),
		HostedZoneID:     p.text("hostedZoneId", "", zonePattern, "the id of a Route 53 hosted zone, such as Z0123456789ABCDEFGHIJ"),
		HostedZoneName:   p.text("hostedZoneName", "", domainPattern, "the name of the hosted zone, such as example.com"),
		Architecture:     p.text("architecture", "arm64", regexp.MustCompile(`^(arm64|x86_64)$`), "arm64 or x86_64"),
		MemoryMiB:        p.number("memory", 256, 128, 10240),
		PublishMemoryMiB: p.number("publishMemory", 512, 128, 10240),
		PresignLifetime:  time.Duration(p.number("presignMinutes", 60, int(settings.MinPresignLifetime.Minutes()), int(settings.MaxPresignLifetime.Minutes()))) * time.Minute,
		PublishLimits: settings.PublishLimits{
			FileBytes:   mib * int64(p.number("publishMaxFileMiB", int(standard.FileBytes/mib), int(low.FileBytes/mib), int(high.FileBytes/mib))),
			Files:       p.number("publishMaxFiles", standard.Files, low.Files, high.Files),
			Uploads:     p.number("publishMaxUploads", standard.Uploads, low.Uploads, high.Uploads),
			Inspections: p.number("publishMaxInspections", standard.Inspections, low.Inspections, high.Inspections),
		},
		PublishConcurrency: p.number("publishConcurrency", 0, 1, 1000),
		LogRetentionDays:   p.number("logRetentionDays", 30, 1, 3653),
		ThrottleRate:       p.number("throttleRate", 100, 1, 10_000),
		ThrottleBurst:      p.number("throttleBurst", 200, 1, 5_000),
		Alarms:             p.boolean("alarms"),
		AlarmTopicARN:      p.text("alarmTopicArn", "", topicARN, "the ARN of an SNS topic in the stack's region, and no FIFO one"),
		AlarmEmail:         p.text("alarmEmail", "", emailPattern, "an address of mail, such as registry@example.com"),
		Dashboard:          p.boolean("dashboard"),
		TableName:          p.text("tableName", "", tablePattern, "a name that a DynamoDB table can have"),
		BucketName:         p.text("bucketName", "", bucketPattern, "a name that an S3 bucket can have"),
	}
	p.access(&s)
	p.signals(&s, region)
	p.unknown()
	if !slices.Contains(retentionPeriod, s.LogRetentionDays) {
		p.fail("logRetentionDays", "%d is not among what CloudWatch Logs takes: %v", s.LogRetentionDays, retentionPeriod)
	}
	domain := map[string]string{"domainName": s.DomainName, "certificateArn": s.CertificateARN, "hostedZoneId": s.HostedZoneID, "hostedZoneName": s.HostedZoneName}
	for _, key := range slices.Sorted(maps.Keys(domain)) {
		if domain[key] == "" && s.DomainName+s.CertificateARN+s.HostedZoneID+s.HostedZoneName != "" {
			p.fail(key, "it is missing: a domain needs domainName, certificateArn, hostedZoneId and hostedZoneName together")
		}
	}
	if arn := strings.Split(s.CertificateARN, ":"); region != "" && len(arn) > 3 && arn[3] != region {
		p.fail("certificateArn", "the certificate is in %s, and the stack goes to %s", arn[3], region)
	}
	if s.HostedZoneName != "" && s.DomainName != s.HostedZoneName && !strings.HasSuffix(s.DomainName, "."+s.HostedZoneName) {
		p.fail("hostedZoneName", "%s is not within the zone %s", s.DomainName, s.HostedZoneName)
	}
	if len(p.errs) > 0 {
		return Settings{}, p.errs[0] // one clear line; the next try shows the next
	}
	return s, nil
}

type parser struct {
	context map[string]any
	known   map[string]bool
	errs    []error
}

func (p *parser) fail(key, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("context %s: %s", key, fmt.Sprintf(format, args...)))
}

func (p *parser) get(key string) (value string, given bool) {
	p.known[key] = true
	v, given := p.context[key]
	return fmt.Sprint(v), given
}

func (p *parser) text(key, fallback string, pattern *regexp.Regexp, want string) string {
	value, given := p.get(key)
	if !given {
		return fallback
	}
	// The forms in which Route 53's own commands print zones.
	value = strings.TrimPrefix(strings.TrimSuffix(value, "."), "/hostedzone/")
	if !pattern.MatchString(value) {
		p.fail(key, "%q is not %s", value, want)
	}
	return value
}

func (p *parser) number(key string, fallback, low, high int) int {
	value, given := p.get(key)
	if !given {
		return fallback
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		p.fail(key, "%q is not a number from %d to %d", value, low, high)
	}
	return n
}

// Cognito says what user pool to make.
type Cognito struct {
	// DomainPrefix is the first part of the name of the sign-in page, which nobody else in the region has.
	DomainPrefix string `json:"domainPrefix"`
	// Rules turn the claims of the pool's tokens into scopes, such as those of cognito:groups.
	Rules []access.Rule `json:"rules"`
}

// check says what is wrong with the rules, as of any issuer's.
func (c *Cognito) check() error {
	text, err := json.Marshal(access.Settings{Issuers: []access.Issuer{{Issuer: "https://cognito.example.com", ClientIDs: []string{"client"}, Rules: c.Rules}}})
	if err != nil {
		return err
	}
	_, err = access.ParseSettings(text)
	return err
}

var reserved = regexp.MustCompile(`aws|amazon|cognito`)

var prefixPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// access reads who may read. An object may come as JSON text too, as a command line has it.
func (p *parser) access(s *Settings) {
	text := p.object("access", "{}")
	parsed, err := access.ParseSettings([]byte(text))
	if err != nil {
		p.fail("access", "%v", err)
		return
	}
	for _, warning := range parsed.Warnings() {
		s.Warnings = append(s.Warnings, "access: "+warning)
	}
	if p.boolean("anonymousRead") {
		if len(parsed.Issuers) > 0 {
			p.fail("anonymousRead", "everything would be open, and access says who may read: take one of them out")
		}
		parsed.Public = append(parsed.Public, access.Pattern{"**"})
	}
	if text := p.object("cognito", ""); text != "" {
		s.Cognito = &Cognito{}
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		switch err := decoder.Decode(s.Cognito); {
		case err != nil:
			p.fail("cognito", "%v", err)
		case decoder.More():
			p.fail("cognito", "there is something behind it")
		case !prefixPattern.MatchString(s.Cognito.DomainPrefix) || reserved.MatchString(s.Cognito.DomainPrefix):
			p.fail("cognito", "domainPrefix %q: it is small letters, digits and hyphens, and AWS refuses the words aws, amazon and cognito in it", s.Cognito.DomainPrefix)
		case s.Cognito.check() != nil:
			p.fail("cognito", "rules: %v", s.Cognito.check())
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
		p.fail("access", "with cognito's it has %d bytes as compact JSON, and functions can be told %d: patterns with * make rules fewer", size, maxAccess)
	}
	s.Access = string(compact)
}

// signals reads the rest of what makes signals, once the settings have the stack's name. What alarms and a dashboard show has to
// be counted.
func (p *parser) signals(s *Settings, region string) {
	counts := p.boolean("metrics")
	_, said := p.context["metrics"]
	switch {
	case said && !counts && (s.Alarms || s.Dashboard):
		p.fail("metrics", "alarms and the dashboard need what is counted: take it out")
	case counts || s.Alarms || s.Dashboard:
		s.MetricsNamespace = "Larder/" + s.StackName
	}
	for key, value := range map[string]string{"alarmTopicArn": s.AlarmTopicARN, "alarmEmail": s.AlarmEmail} {
		if value != "" && !s.Alarms {
			p.fail(key, "there are no alarms to send: say alarms too, or take it out")
		}
	}
	if s.AlarmTopicARN != "" && s.AlarmEmail != "" {
		p.fail("alarmEmail", "a topic of your own has subscriptions of your own: subscribe the address there, or take alarmTopicArn out")
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

func (p *parser) object(key, fallback string) string {
	value, given := p.context[key]
	p.known[key] = true
	if !given {
		return fallback
	}
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		p.fail(key, "%v", err)
	}
	return string(text)
}

func (p *parser) boolean(key string) bool {
	value, given := p.get(key)
	if given && value != "true" && value != "false" {
		p.fail(key, "%q is not true or false", value)
	}
	return value == "true"
}

// unknown finds keys that are nobody's. CDK's own have a colon or begin with an at sign.
func (p *parser) unknown() {
	for _, key := range slices.Sorted(maps.Keys(p.context)) {
		if !p.known[key] && !strings.HasPrefix(key, "@") && !strings.Contains(key, ":") {
			p.fail(key, "there is no such setting; there are %s", strings.Join(slices.Sorted(maps.Keys(p.known)), ", "))
		}
	}
}
