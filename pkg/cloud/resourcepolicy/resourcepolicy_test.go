package resourcepolicy_test

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/cloud/resourcepolicy"
)

// FuzzPermits checks that no policy causes a panic, and that a statement which denies
// everything decides, whatever else a policy has.
func FuzzPermits(f *testing.F) {
	for _, seed := range []string{
		`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:root"},"Action":"kms:*","Resource":"*"}`,
		`{"Effect":"Allow","Principal":"*","NotAction":["s3:*"],"NotResource":"x","Condition":{"StringLike":{"kms:ViaService":"*"}}}`,
		`{"Effect":"Deny","NotPrincipal":{"AWS":["1"]},"Action":"*","Resource":"*","Condition":{"Bool":{"aws:SecureTransport":false}}}`,
		`{"Effect":"Allow","Action":{},"Resource":[1,true]}`, `[]`, `null`, `"x"`,
	} {
		f.Add(seed)
	}
	request := resourcepolicy.Request{
		Action: "kms:Decrypt", Resource: "arn:x", Principals: []string{"1"},
		Keys: map[string]string{"kms:ViaService": "s3.eu-central-1.amazonaws.com", "aws:SecureTransport": "true"},
	}
	const deny = `{"Effect":"Deny","Principal":"*","Action":"*","Resource":"*"}`
	f.Fuzz(func(t *testing.T, statement string) {
		policy, err := resourcepolicy.Parse(`{"Statement":[` + statement + `]}`)
		if err != nil {
			return
		}
		policy.Permits(request)
		policy.Denies("s3:PutObject", "bucket")
		if strings.TrimSpace(statement) == "" {
			return
		}
		policy, err = resourcepolicy.Parse(`{"Statement":[` + statement + `,` + deny + `]}`)
		if err == nil && policy.Permits(request) != resourcepolicy.No {
			t.Errorf("with a statement that denies everything, the answer is %v", policy.Permits(request))
		}
	})
}
