package s3

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Remove removes all that is below a prefix for good: each version of each object, and each delete marker, one by one, so that
// one which is held back is named. It returns how many it has removed, also where it fails. Nothing being there is no error, and
// a missing permission is registry.ErrForbidden.
//
// In a bucket without versions an object is the version null of itself, so that the permissions are the same:
// s3:ListBucketVersions and s3:DeleteObjectVersion.
func (s *Store) Remove(ctx context.Context, prefix string) (removed int, err error) {
	if err := objects.CheckFolder(prefix); err != nil {
		return 0, err
	}
	// How often each was deleted: an object without versions may be put once more meanwhile.
	deleted := make(map[version]int)
	for {
		// Always the first page, of what is left: markers of what was deleted lead nowhere.
		page, err := s.client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &s.bucket, Prefix: &prefix})
		if err != nil {
			return removed, s.refused(prefix, "s3:ListBucketVersions", err)
		}
		found := versionsOf(page)
		if len(found) == 0 {
			return removed, nil
		}
		for _, v := range found {
			_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &v.key, VersionId: &v.id})
			if err != nil {
				err = s.refused(v.key, "s3:DeleteObjectVersion", err)
			}
			switch {
			case errors.Is(err, registry.ErrNotFound): // somebody else was faster
			case err != nil:
				return removed, err
			default:
				removed++
			}
			if deleted[v]++; deleted[v] > 3 {
				return removed, fmt.Errorf("bucket %s: object %s, version %s, was deleted and is still there", s.bucket, v.key, v.id)
			}
		}
	}
}

// version is one of an object, or a delete marker.
type version struct{ key, id string }

func versionsOf(page *s3.ListObjectVersionsOutput) (all []version) {
	for _, v := range page.Versions {
		all = append(all, version{aws.ToString(v.Key), aws.ToString(v.VersionId)})
	}
	for _, m := range page.DeleteMarkers {
		all = append(all, version{aws.ToString(m.Key), aws.ToString(m.VersionId)})
	}
	return all
}

// refused says which permission is missing, where one is.
func (s *Store) refused(key, permission string, err error) error {
	if c := code(err); c == "AccessDenied" || c == "Forbidden" {
		return fmt.Errorf("bucket %s: object %s: %w: it needs the permission %s: %w", s.bucket, key, registry.ErrForbidden, permission, err)
	}
	return s.translate(key, err)
}
