package web

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// head is the top of the page of an address.
type head struct {
	Breadcrumb []link
	// Before, Name and After are the parts of the address, as in [row].
	Before, Name, After string
	Picker              picker
	Description         string
	Published           time.Time
	// From is the repository, and At the tag or the commit, that published the
	// version. They are empty unless an identity proves them.
	From, At link
	// Facts are more facts in the same line, such as the signing key.
	Facts []field
	// Downloads are the downloads of the address in short, or empty. UsedBy is
	// the path of the page with its uses, or empty.
	Downloads, UsedBy string
	// Changes leads to what changed in the version. It can be empty.
	Changes changesLink
	Banner  *banner
	// Sections are the links to the sections of the page that have content.
	Sections []section
}

// link is a text with a path or a URL. Without one it is text.
type link struct{ Text, URL string }

// section is a link to a section of the page, or to another page if it has a
// path.
type section struct {
	ID, Title, Path string
	// Count is the number of things in the section, or 0 for none.
	Count int
	// Apart means that the section is not in the order of the page, such as one
	// of the aside. The link is then never marked as the current one.
	Apart bool
}

// picker is the menu of versions beside the title.
type picker struct {
	Current string
	// Badges are those of the current version, such as latest.
	Badges []badge
	// Newest are the newest versions, at most 10.
	Newest []listed
	// Total is the number of all versions. All is the path of their list, and
	// Compare that of the comparison with an earlier version, or empty.
	Total        int
	All, Compare string
}

// listed is a version in a list of versions.
type listed struct {
	Version string
	// Path is the path of the version's page. It is empty for a withdrawn one.
	Path      string
	IsCurrent bool
	Badges    []badge
	Published time.Time
	// Note is the reason of a deprecation or a withdrawal.
	Note string
	// Withdrawn means that the version is struck through.
	Withdrawn bool
	// By is who published the version, in short, such as v1.4.0 d92e6b7 or token
	// build-server. Claimed is the tag and the commit that they state, or empty.
	By      link
	Claimed string
	// Changes leads to the comparison with the version before. It can be empty.
	Changes changesLink
	// Downloads is the number of the last days. It is 0 if that is not shown.
	Downloads int
	// IsFrom and IsTo mean that the form first has the version.
	IsFrom, IsTo bool
}

// changesLink is the link to what changed in a version.
type changesLink struct {
	link

	// Breaking is such as "2 breaking", or empty. The text then has the rest.
	Breaking string
	// Since is the earlier version, if the text lacks it. IsBefore means that it is
	// the version before.
	Since    string
	IsBefore bool
}

// banner is a notice below the facts. A page has at most one.
type banner struct {
	Tone string // bad, warn or note
	// Strong is the first sentence, and Text what follows it, in the words of
	// the author.
	Strong, Text string
	Links        []link
}

// provenance describes who published a version.
type provenance struct {
	// Verdict is the first line. Tone is ok for a verified CI job.
	Verdict, Tone string
	Fields        []field
}

// field is a labelled value. Fields without a value are omitted.
type field struct {
	Label string
	Value link
	// IsCode means that the value is a digest, a version or another code.
	IsCode bool
	// Time replaces the value if it is set.
	Time time.Time
}

func newProvenance(by registry.Publisher, at time.Time) provenance {
	p := provenance{}
	switch {
	case by.Kind == registry.PublisherOIDC && by.Repository != "":
		p.Verdict, p.Tone = "Published by a verified CI job", "ok"
		p.add("Repository", cmp.Or(strings.TrimPrefix(by.SourceURL(), "https://"), by.Repository), by.SourceURL(), false)
		p.add("Ref", by.Ref, "", true)
		p.add("Commit", by.Commit, commitURL(by), true)
		p.add("Run", runName(by), httpsOnly(by.RunURL), false)
	case by.Kind == registry.PublisherOIDC:
		p.Verdict, p.Tone = "Published by a verified identity", "ok"
		p.add("Name", by.Name, "", false)
		p.add("Subject", by.Subject, "", true)
		p.add("Issuer", by.Issuer, "", false)
	case by.Kind == registry.PublisherToken:
		p.Verdict = "Published with a token"
		p.add("Token", by.Name, "", false)
	case by.Kind == registry.PublisherAWS:
		p.Verdict = "Published with AWS credentials"
		p.add("Principal", by.Name, "", true)
	case by.Kind == registry.PublisherUser:
		p.Verdict = "Published on the registry's machine"
		p.add("User", by.Name, "", false)
	default:
		p.Verdict = "Published"
	}
	if !at.IsZero() {
		p.Fields = append(p.Fields, field{Label: "Published", Time: at})
	}
	return p
}

// addClaimed adds the Git source of a version, as its publisher states it.
// label names it. It has a link to the repository if its host has a plain name.
func (p *provenance) addClaimed(label string, c *registry.ClaimedSource) {
	if c == nil {
		return
	}
	url := ""
	if plainHost.MatchString(c.Remote) {
		url = "https://" + c.Repository()
	}
	p.add(label, c.Short(), url, false)
}

// plainHost matches a URL of https with a name and the default port.
var plainHost = regexp.MustCompile(`^https://[a-z0-9.-]+\.[a-z]+/`)

// addCopies adds where a version was copied from, as its publisher states, and
// to.
func (p *provenance) addCopies(from *registry.CopiedFrom, to []string) {
	if from != nil {
		p.add("Copied from", from.Source, "", true)
		p.add("Published there by", from.PublishedBy.String(), "", false)
		p.addClaimed("Publisher there claims", from.Claimed)
		if !from.PublishedAt.IsZero() {
			p.Fields = append(p.Fields, field{Label: "Published there", Time: from.PublishedAt})
		}
	}
	p.add("Copied to", strings.Join(to, ", "), "", true)
}

func (p *provenance) add(label, value, url string, isCode bool) {
	if value != "" {
		p.Fields = append(p.Fields, field{Label: label, Value: link{value, url}, IsCode: isCode})
	}
}

// commitURL returns the URL of the commit that published a version, or an empty
// string if no identity proves it.
func commitURL(by registry.Publisher) string {
	source := by.SourceURL()
	if source == "" || by.Commit == "" {
		return ""
	}
	if strings.Contains(by.RunURL, "/-/") { // GitLab
		return source + "/-/commit/" + by.Commit
	}
	return source + "/commit/" + by.Commit
}

// runName returns the number of a CI run, which is the last part of its URL.
func runName(by registry.Publisher) string {
	if by.RunURL == "" {
		return ""
	}
	number := by.RunURL[strings.LastIndexByte(by.RunURL, '/')+1:]
	if number == "" || strings.Trim(number, "0123456789") != "" {
		return "the job's page"
	}
	return number
}

// httpsOnly returns a URL if it uses https.
func httpsOnly(url string) string {
	if strings.HasPrefix(url, "https://") {
		return url
	}
	return ""
}

// shortCommit returns the first digits of a commit.
func shortCommit(commit string) string { return commit[:min(7, len(commit))] }

// refName returns the name of a tag or a branch in a Git ref.
func refName(ref string) string {
	for _, prefix := range []string{"refs/tags/", "refs/heads/"} {
		if name, found := strings.CutPrefix(ref, prefix); found {
			return name
		}
	}
	return ref
}

// newBy describes the publisher of a version in short.
func newBy(by registry.Publisher) link {
	switch {
	case by.Commit != "":
		return link{strings.TrimSpace(refName(by.Ref) + " " + shortCommit(by.Commit)), commitURL(by)}
	case by.Kind == registry.PublisherToken:
		return link{Text: "token " + by.Name}
	case by.Kind == registry.PublisherAWS:
		_, name, _ := strings.Cut(by.Name, "/") // the rest of an ARN is the same for all
		return link{Text: cmp.Or(name, by.Name)}
	}
	return link{Text: by.Name}
}
