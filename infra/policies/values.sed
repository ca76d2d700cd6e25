# The values of the policies in this folder. Copy this file, and edit it: see docs/company-account.md.
# The stack: partition, account, region and stackName. BUCKET is stackName in lower case.
s|PARTITION|aws|g
s|ACCOUNT|111122223333|g
s|REGION|eu-central-1|g
s|STACK|larder|g
s|BUCKET|larder|g
# The qualifier of the bootstrap, which has at most 10 characters.
s|QUALIFIER|larder|g
# The name of the permissions boundary, with its path.
s|BOUNDARY|boundary-of-larder|g
# rolePath without its first slash, such as platform/. Empty without rolePath.
s|PATH||g
# hostedZoneId, or none.
s|ZONE|none|g
# logGroupPrefix. Empty without it.
s|LOGS||g
# The id of the key in kmsKeyArn, or none.
s|KEY|none|g
