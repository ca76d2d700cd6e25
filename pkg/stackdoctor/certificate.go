package stackdoctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	"github.com/aws/aws-sdk-go-v2/service/acm/types"

	"github.com/larder-registry/larder/pkg/settings"
)

// notice is how long before its end a certificate is reported. ACM renews one
// of its own 60 days before, so that something is in the way by then.
const notice = 14 * 24 * time.Hour

// certificate examines that of the registry's domain. A stack without a domain
// is healthy.
func (e *examination) certificate(ctx context.Context) {
	arn := e.outputs[settings.OutputCertificate]
	if arn == "" {
		e.skip("certificate", "the stack has no domain of its own")
		return
	}
	c := call{"certificate", "acm:DescribeCertificate", arn}
	out, err := e.Services.Certificates.DescribeCertificate(ctx, &acm.DescribeCertificateInput{CertificateArn: &arn})
	switch {
	case code(err) == "ResourceNotFoundException":
		e.wrong(c.step, c.String(), "there is no certificate "+arn, "make one in ACM, set certificateArn, and deploy")
		return
	case err != nil:
		e.failed(c, err)
		return
	}
	d := out.Certificate
	until := aws.ToTime(d.NotAfter)
	renew := "ACM renews its own certificates while the domain's validation record is there: put it back. " +
		"Import one of another authority anew"
	if r := d.RenewalSummary; r != nil && r.RenewalStatus == types.RenewalStatusFailed {
		renew = fmt.Sprintf(
			"ACM could not renew it (%s): put the domain's validation record back",
			r.RenewalStatusReason,
		)
	}
	switch left := until.Sub(e.Now()); {
	case d.NotAfter != nil && left <= 0:
		e.wrong(c.step, c.String(), "it expired at "+until.UTC().Format(time.RFC3339), renew)
	case d.Status != types.CertificateStatusIssued:
		e.wrong(
			c.step,
			c.String(),
			fmt.Sprintf("its status is %s, and must be %s", d.Status, types.CertificateStatusIssued),
			"make one in ACM, set certificateArn, and deploy",
		)
	case !covers(d, e.outputs[settings.OutputHost]):
		e.wrong(
			c.step,
			c.String(),
			fmt.Sprintf("it is of %s, and does not cover %s", strings.Join(namesOf(d), ", "), e.outputs[settings.OutputHost]),
			"make one of the registry's host in ACM, set certificateArn, and deploy",
		)
	case left < notice:
		e.warn(
			c.step,
			c.String(),
			fmt.Sprintf("it expires in %d days, at %s", int(left.Hours()/24), until.UTC().Format(time.RFC3339)),
			renew,
		)
	default:
		e.ok(c.step, "it is valid until "+until.UTC().Format(time.DateOnly))
	}
}

// namesOf returns the names of a certificate, which may have asterisks.
func namesOf(d *types.CertificateDetail) []string {
	names := d.SubjectAlternativeNames
	if name := aws.ToString(d.DomainName); name != "" && !slices.Contains(names, name) {
		names = append([]string{name}, names...)
	}
	return names
}

// covers reports whether clients accept a certificate for a host.
func covers(d *types.CertificateDetail, host string) bool {
	return (&x509.Certificate{DNSNames: namesOf(d)}).VerifyHostname(host) == nil
}
