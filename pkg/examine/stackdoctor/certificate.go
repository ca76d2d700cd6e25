package stackdoctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/settings"
)

// notice is how long before the expiry of a certificate a warning begins. ACM
// renews its own certificates 60 days before, so by then the renewal has a
// problem.
const notice = 14 * 24 * time.Hour

// certificate examines the certificate of the registry's domain. A stack may
// have no domain.
func (e *examination) certificate(ctx context.Context) {
	arn := e.outputs[settings.OutputCertificate]
	if arn == "" {
		e.skip("certificate", "the stack has no domain of its own")
		return
	}
	c := call{"certificate", "acm:DescribeCertificate", arn}
	d, err := signedcall.DescribeCertificate(ctx, e.Services.Config, arn)
	switch {
	case code(err) == "ResourceNotFoundException":
		e.wrong(c.step, c.String(), "there is no certificate "+arn, "create one in ACM, set certificateArn, and deploy")
		return
	case err != nil:
		e.failed(c, err)
		return
	}
	until := d.Expires()
	renew := "ACM renews its own certificates as long as the domain's validation record exists: restore the record; " +
		"if another authority issued the certificate, import a new one"
	if r := d.RenewalSummary; r.RenewalStatus == "FAILED" {
		renew = fmt.Sprintf(
			"ACM could not renew it (%s): restore the domain's validation record",
			r.RenewalStatusReason,
		)
	}
	switch left := until.Sub(e.Now()); {
	case !until.IsZero() && left <= 0:
		e.wrong(c.step, c.String(), "it expired on "+until.Format(time.RFC3339), renew)
	case d.Status != "ISSUED":
		e.wrong(
			c.step,
			c.String(),
			"its status is "+d.Status+" instead of ISSUED",
			"create one in ACM, set certificateArn, and deploy",
		)
	case !covers(d, e.outputs[settings.OutputHost]):
		e.wrong(
			c.step,
			c.String(),
			fmt.Sprintf("it is valid for %s, but not for %s", strings.Join(namesOf(d), ", "), e.outputs[settings.OutputHost]),
			"create one for the registry's host in ACM, set certificateArn, and deploy",
		)
	case left < notice:
		e.warn(
			c.step,
			c.String(),
			fmt.Sprintf("it expires in %d days, on %s", int(left.Hours()/24), until.Format(time.RFC3339)),
			renew,
		)
	default:
		e.ok(c.step, "it is valid until "+until.Format(time.DateOnly))
	}
}

// namesOf returns the names of a certificate, which may contain asterisks.
func namesOf(d signedcall.Certificate) []string {
	names := d.SubjectAlternativeNames
	if d.DomainName != "" && !slices.Contains(names, d.DomainName) {
		names = append([]string{d.DomainName}, names...)
	}
	return names
}

func covers(d signedcall.Certificate, host string) bool {
	return (&x509.Certificate{DNSNames: namesOf(d)}).VerifyHostname(host) == nil
}
