package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
)

// keys describes the keys that signed the packages of the shown version.
func (e *mirroredEdition) keys(origin string) (k signingKey, v verification) {
	r := e.record()
	var ids []string
	signed := 0
	for _, p := range r.Packages {
		if p.SigningKey != "" {
			signed++
			if !slices.Contains(ids, p.SigningKey) {
				ids = append(ids, p.SigningKey)
			}
		}
	}
	for _, id := range ids {
		k.Fields = append(k.Fields, field{Label: "Key ID", Value: link{Text: id}, IsCode: true})
		for i, trusted := range e.origin.Keys {
			if trusted.ID == id {
				k.Fields = append(k.Fields, e.keyFields(trusted, i == 0, origin)...)
			}
		}
	}
	k.ID = strings.Join(ids, ", ")
	all := len(r.Packages)
	if signed > 0 {
		k.Fields = append(k.Fields, textField("Signs", "SHA256SUMS of the origin, with "+eachArchive(signed)))
	}
	switch {
	case signed == 0:
		k.Note = "No signature was verified. " + origin + " named no key, or the packages came from a folder."
		k.Fields = decisionFields("Accepted", e.origin.Unsigned)
		return k, verification{
			Verdict: "Digests are valid",
			Text:    fmt.Sprintf("The registry checked the digest of %s. Clients check it again.", eachArchive(all)),
		}
	case signed < all:
		k.Note = fmt.Sprintf("It signed %d of %s. For the others, no signature was verified.", signed, plural(all, "archive"))
	}
	again := "Clients check the digest again."
	if len(r.Verifiable()) > 0 {
		again = "Clients with a host block check both again."
	}
	return k, verification{
		Verdict: "Signature and digests are valid", Tone: "ok",
		Text: fmt.Sprintf("The registry checked the signature of the origin's SHA256SUMS and the digest of %s. %s",
			eachArchive(signed), again),
	}
}

// keyFields describes a trusted key, and why it is trusted.
func (e *mirroredEdition) keyFields(k registry.OriginKey, isFirst bool, origin string) (fields []field) {
	fields = append(fields, field{Label: "Fingerprint", Value: link{Text: k.Fingerprint}, IsCode: true})
	if k.Owner != "" {
		fields = append(fields, textField("Owner", k.Owner))
	}
	if !k.SeenAt.IsZero() {
		fields = append(fields, textField("First seen", date(k.SeenAt)))
	}
	isNamed, _ := admission.CheckKey(e.rule, k)
	switch {
	case k.Trusted != nil:
		fields = append(fields, decisionFields("Trusted", k.Trusted)...)
	case isNamed:
		fields = append(fields, textField("Trusted", "The mirror policy names it"))
	case isFirst:
		fields = append(fields, textField("Trusted", "The first key of "+origin+" for this provider"))
	}
	return fields
}

func textField(label, text string) field { return field{Label: label, Value: link{Text: text}} }

// decisionFields describes a decision of an operator: when, who and why. verb is
// what the operator did. There are none for nil.
func decisionFields(verb string, of *registry.Decision) []field {
	d := newDecision(of)
	if d == nil {
		return nil
	}
	fields := []field{textField(verb, date(d.At)), textField(verb+" by", d.By)}
	if d.Reason != "" {
		fields = append(fields, textField("Reason", d.Reason))
	}
	return fields
}
