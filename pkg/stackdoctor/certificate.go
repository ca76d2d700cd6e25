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
	out, err := e.Services.Certificates.DescribeCertificate(ctx, &acm.DescribeCertificateInput{CertificateArn: &arn})
	switch {
	case code(err) == "ResourceNotFoundException":
		e.wrong(c.step, c.String(), "there is no certificate "+arn, "create one in ACM, set certificateArn, and deploy")
		return
	case err != nil:
		e.failed(c, err)
		return
	}
	d := out.Certificate
	until := aws.ToTime(d.NotAfter)
	renew := "ACM renews its own certificates as long as the domain's validation record exists: restore the record; " +
		"if another authority issued the certificate, import a new one"
	if r := d.RenewalSummary; r != nil && r.RenewalStatus == types.RenewalStatusFailed {
		renew = fmt.Sprintf(
			"ACM could not renew it (%s): restore the domain's validation record",
			r.RenewalStatusReason,
		)
	}
	switch left := until.Sub(e.Now()); {
	case d.NotAfter != nil && left <= 0:
		e.wrong(c.step, c.String(), "it expired on "+until.UTC().Format(time.RFC3339), renew)
	case d.Status != types.CertificateStatusIssued:
		e.wrong(
			c.step,
			c.String(),
			fmt.Sprintf("its status is %s instead of %s", d.Status, types.CertificateStatusIssued),
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
			fmt.Sprintf("it expires in %d days, on %s", int(left.Hours()/24), until.UTC().Format(time.RFC3339)),
			renew,
		)
	default:
		e.ok(c.step, "it is valid until "+until.UTC().Format(time.DateOnly))
	}
}

// namesOf returns the names of a certificate, which may contain asterisks.
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
