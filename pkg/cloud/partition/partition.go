// Package partition has the partitions of AWS: groups of regions with ARNs and
// a domain of their own. It does without the SDK's rules for endpoints, so that
// functions start fast.
//
// Source: partitions.json of https://github.com/aws/aws-sdk-go-v2/tree/main/internal/endpoints/awsrulesfn
package partition

import (
	"slices"
	"strings"
)

// Partition is a group of regions.
type Partition struct {
	// ID is the second part of ARNs.
	ID string
	// Domain is the end of the hosts of all services. DualStack is the end of
	// those that also have IPv6 addresses.
	Domain, DualStack string

	regions string // the prefix of its regions' names
}

// partitions are all partitions. The first one has the regions that no other
// one has.
var partitions = []Partition{
	{"aws", "amazonaws.com", "api.aws", ""},
	{"aws-us-gov", "amazonaws.com", "api.aws", "us-gov-"},
	{"aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", "cn-"},
	{"aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", "eusc-"},
	{"aws-iso", "c2s.ic.gov", "api.aws.ic.gov", "us-iso-"},
	{"aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", "us-isob-"},
	{"aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", "eu-isoe-"},
	{"aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", "us-isof-"},
}

// Of returns the partition of a region.
func Of(region string) Partition {
	for _, p := range partitions[1:] {
		if strings.HasPrefix(region, p.regions) {
			return p
		}
	}
	return partitions[0]
}

// All returns all partitions.
func All() []Partition { return slices.Clone(partitions) }

// Host returns the host of a service in a region.
func Host(service, region string) string {
	return service + "." + region + "." + Of(region).Domain
}
